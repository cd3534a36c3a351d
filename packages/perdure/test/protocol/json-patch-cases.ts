/**
 * What an implementation of RFC 6902 has to take and to refuse. The list of questions is that of the json-patch-tests suite
 * (github.com/json-patch/json-patch-tests, Apache-2.0: `tests.json` and, for the examples of the RFC's appendix A, `spec_tests.json`); the
 * documents and values are our own. Questions about documents that JavaScript cannot hold (two members of one name) are left out.
 */
export interface PatchCase {
  readonly claim: string;
  readonly doc: unknown;
  readonly patch: readonly unknown[];
}
export interface Accepted extends PatchCase {
  readonly expected: unknown;
}
export interface Refused extends PatchCase {
  /** Part of the reason that our error gives. */
  readonly reason: string;
}

const add = (path: string, value: unknown) => ({ op: "add", path, value });
const replace = (path: string, value: unknown) => ({ op: "replace", path, value });
const test = (path: string, value: unknown) => ({ op: "test", path, value });
const remove = (path: string) => ({ op: "remove", path });
const move = (from: string, path: string) => ({ op: "move", from, path });
const copy = (from: string, path: string) => ({ op: "copy", from, path });

const accepted = (claim: string, doc: unknown, patch: readonly unknown[], expected: unknown): Accepted => ({
  claim,
  doc,
  patch,
  expected,
});
const refused = (claim: string, doc: unknown, patch: readonly unknown[], reason: string): Refused => ({
  claim,
  doc,
  patch,
  reason,
});

const NO_INDEX = "is no index";
const BEYOND = "is beyond";
const MISSING = "there is no member";
const OTHER = "another one";
const NO_VALUE = "it has no value";

export const ACCEPTED: readonly Accepted[] = [
  accepted("an empty patch leaves an empty object", {}, [], {}),
  accepted("an empty patch leaves an object", { name: "Ada" }, [], { name: "Ada" }),
  accepted("an empty patch leaves an array", ["Ada"], [], ["Ada"]),
  accepted("the order of members says nothing", { a: 1, b: 2 }, [], { b: 2, a: 1 }),
  accepted("nor in an array's element", [{ a: 1, b: 2 }], [], [{ b: 2, a: 1 }]),
  accepted("nor one level down", { in: { a: 1, b: 2 } }, [], { in: { b: 2, a: 1 } }),

  accepted("add makes a member", { a: 1 }, [add("/b", "new")], { a: 1, b: "new" }),
  accepted("add replaces a member that is there", { a: null }, [add("/a", 7)], { a: 7 }),
  accepted("add writes a numeric string as a string", {}, [add("/a", "7")], { a: "7" }),
  accepted("add writes a number", {}, [add("/a", 7)], { a: 7 }),
  accepted("add writes true", { a: 1 }, [add("/b", true)], { a: 1, b: true }),
  accepted("add writes false", { a: 1 }, [add("/b", false)], { a: 1, b: false }),
  accepted("add writes null", { a: 1 }, [add("/b", null)], { a: 1, b: null }),
  accepted("add writes a composite value", { a: 1 }, [add("/b", [2, { c: 3 }])], { a: 1, b: [2, { c: 3 }] }),
  accepted("add reaches into composite values", { in: [{ a: 1 }] }, [add("/in/0/b", 2)], { in: [{ a: 1, b: 2 }] }),
  accepted("add makes a nested object whole", { a: 1 }, [add("/child", { grandchild: {} })], {
    a: 1,
    child: { grandchild: {} },
  }),
  accepted("members that the RFC does not know are ignored", { a: 1 }, [{ ...add("/b", 2), note: "why" }], {
    a: 1,
    b: 2,
  }),
  accepted("the same for test", { a: 1 }, [{ ...test("/a", 1), note: "why" }], { a: 1 }),
  accepted("the empty key is a key", {}, [add("/", 1)], { "": 1 }),
  accepted("also below another", { in: {} }, [add("/in/", 1)], { in: { "": 1 } }),
  accepted("0 names a member of an object", { a: 1 }, [add("/0", "zero")], { a: 1, "0": "zero" }),

  accepted("add at 0 fills an empty array", [], [add("/0", "a")], ["a"]),
  accepted("add at 0 pushes the others up", ["b", "c"], [add("/0", "a")], ["a", "b", "c"]),
  accepted("add in the middle pushes the later ones up", ["a", "c"], [add("/1", "b")], ["a", "b", "c"]),
  accepted("add one past the last appends", ["a"], [add("/1", "b")], ["a", "b"]),
  accepted("also behind two", ["a", "b"], [add("/2", "c")], ["a", "b", "c"]),
  accepted("add at - appends", [1, 2], [add("/-", { in: ["x"] })], [1, 2, { in: ["x"] }]),
  accepted("add at - appends to an empty root", [], [add("/-", "a")], ["a"]),
  accepted("add at - appends levels down", [1, [2, [3]]], [add("/1/1/-", 4)], [1, [2, [3, 4]]]),
  accepted("an array is added as one element", ["a", "z"], [add("/1", ["b", "c"])], ["a", ["b", "c"], "z"]),
  accepted("an array is appended as one element", { list: ["a"] }, [add("/list/-", ["b"])], { list: ["a", ["b"]] }),

  accepted("remove takes a member out", { a: 1, list: [1, 2] }, [remove("/list")], { a: 1 }),
  accepted("remove reaches into arrays", { in: [{ a: 1 }] }, [remove("/in/0/a")], { in: [{}] }),
  accepted("remove of an element pulls the later ones down", [1, 2, 3], [remove("/0")], [2, 3]),
  accepted("removes see what the earlier ones left", [1, 2, 3, 4], [remove("/1"), remove("/2")], [1, 3]),
  accepted("remove takes null out", { a: null }, [remove("/a")], {}),

  accepted("replace swaps a member", { a: 1, b: [2] }, [replace("/a", [9])], { a: [9], b: [2] }),
  accepted("replace reaches into arrays", { in: [{ a: 1 }] }, [replace("/in/0/a", "x")], { in: [{ a: "x" }] }),
  accepted("replace swaps an element", ["a"], [replace("/0", "b")], ["b"]),
  accepted("replace can write 0", [""], [replace("/0", 0)], [0]),
  accepted("replace can write true", [""], [replace("/0", true)], [true]),
  accepted("replace can write false", [""], [replace("/0", false)], [false]),
  accepted("replace can write null", [""], [replace("/0", null)], [null]),
  accepted("replace can write null into an object", { a: "x" }, [replace("/a", null)], { a: null }),
  accepted("replace can write over null", { a: null }, [replace("/a", "x")], { a: "x" }),
  accepted("an array replaces as one element", ["a", "z"], [replace("/1", ["b", "c"])], ["a", ["b", "c"]]),

  accepted("replace swaps the whole document", { a: 1 }, [replace("", { b: 2 })], { b: 2 }),
  accepted("so does add", { a: 1 }, [add("", { b: 2 })], { b: 2 }),
  accepted("by another kind", {}, [add("", [])], []),
  accepted("and back", [], [add("", {})], {}),
  accepted("a document may be a scalar", "a", [replace("", "b")], "b"),
  accepted("the whole document can be tested", { a: 1 }, [test("", { a: 1 })], { a: 1 }),
  accepted("a member can become the document", { a: { b: 1 } }, [move("/a", "")], { b: 1 }),
  accepted("a copy of a member too", { a: [1] }, [copy("/a", "")], [1]),

  accepted("move takes a value elsewhere", { a: 1, in: [{ b: 2 }] }, [move("/a", "/c")], { in: [{ b: 2 }], c: 1 }),
  accepted("move onto itself changes nothing", { a: 1 }, [move("/a", "/a")], { a: 1 }),
  accepted("move out of an object into an array", { in: [{ b: "x" }], c: 1 }, [move("/in/0/b", "/in/1")], {
    in: [{}, "x"],
    c: 1,
  }),
  accepted(
    "move within an array counts after the removal",
    ["a", "b", "c", "d"],
    [move("/1", "/3")],
    ["a", "c", "d", "b"],
  ),
  accepted("move between objects", { from: { a: 1, b: 2 }, to: {} }, [move("/from/b", "/to/c")], {
    from: { a: 1 },
    to: { c: 2 },
  }),
  accepted("move takes null along", { a: null }, [move("/a", "/b")], { b: null }),
  accepted("move to - appends", { a: 1, list: [0] }, [move("/a", "/list/-")], { list: [0, 1] }),
  accepted("copy leaves the original", { in: [{ a: 1 }], b: 2 }, [copy("/in/0", "/c")], {
    in: [{ a: 1 }],
    b: 2,
    c: { a: 1 },
  }),
  accepted("copy takes null along", { a: null }, [copy("/a", "/b")], { a: null, b: null }),
  accepted("a copy is another value from then on", { a: { n: 1 } }, [copy("/a", "/b"), replace("/b/n", 2)], {
    a: { n: 1 },
    b: { n: 2 },
  }),
  accepted(
    "also when the original was changed before",
    { a: { n: 1 } },
    [add("/a/m", 0), copy("/a", "/b"), replace("/a/n", 2)],
    {
      a: { n: 2, m: 0 },
      b: { n: 1, m: 0 },
    },
  ),

  accepted("test finds null", { a: null }, [test("/a", null)], { a: null }),
  accepted("test compares whatever the order of members", { in: { a: 1, b: 2 } }, [test("/in", { b: 2, a: 1 })], {
    in: { a: 1, b: 2 },
  }),
  accepted("also in elements", { in: [{ a: 1, b: 2 }] }, [test("/in", [{ b: 2, a: 1 }])], { in: [{ a: 1, b: 2 }] }),
  accepted("test compares arrays in order", { in: { list: [1, 3, 2] } }, [test("/in", { list: [1, 3, 2] })], {
    in: { list: [1, 3, 2] },
  }),
  accepted("test finds the empty key", { "": 1 }, [test("/", 1)], { "": 1 }),
  accepted("test finds strings and elements", { a: "x", list: ["b", 2] }, [test("/a", "x"), test("/list/1", 2)], {
    a: "x",
    list: ["b", 2],
  }),
  accepted("1e0 may be a key", { "1e0": "x" }, [test("/1e0", "x")], { "1e0": "x" }),
  accepted(
    "keys may hold anything; only ~ and / are escaped",
    { "a/b": 1, "c%d": 2, "e^f": 3, "g|h": 4, "i\\j": 5, 'k"l': 6, " ": 7, "m~n": 8, "~1": 9 },
    [
      test("/a~1b", 1),
      test("/c%d", 2),
      test("/e^f", 3),
      test("/g|h", 4),
      test("/i\\j", 5),
      test('/k"l', 6),
      test("/ ", 7),
      test("/m~0n", 8),
      test("/~01", 9),
    ],
    { "a/b": 1, "c%d": 2, "e^f": 3, "g|h": 4, "i\\j": 5, 'k"l': 6, " ": 7, "m~n": 8, "~1": 9 },
  ),
];

export const REFUSED: readonly Refused[] = [
  refused("add beyond the end", { list: [1, 2] }, [add("/list/8", "x")], BEYOND),
  refused("add two past the last", ["a", "b"], [add("/3", "x")], BEYOND),
  refused("add at a negative index", { list: [1, 2] }, [add("/list/-1", "x")], NO_INDEX),
  refused("add of a member to an array", ["a", "b"], [add("/c", 1)], NO_INDEX),
  refused("add at 1e0", ["a", "b"], [add("/1e0", "x")], NO_INDEX),
  refused("add below a member that is not there", { a: 1 }, [add("/b/c", 1)], MISSING),
  refused("add below a number", { a: 1 }, [add("/a/b", 1)], "has no member"),
  refused("add to null", null, [add("/a", 1)], "has no member"),

  refused("remove of a member that is not there", { a: 1 }, [remove("/b")], MISSING),
  refused("remove of an element that is not there", ["a", "b"], [remove("/2")], BEYOND),
  refused("remove at -", ["a", "b"], [remove("/-")], NO_INDEX),
  refused("remove at 1e0", [1, 2, 3], [remove("/1e0")], NO_INDEX),
  refused("remove below 1e0", { in: [{ a: 1 }] }, [remove("/in/1e0/a")], NO_INDEX),
  refused("replace of a member that is not there", { a: 1 }, [replace("/b", 2)], MISSING),
  refused("replace below a member that is not there", { a: 1 }, [replace("/b/c", 2)], MISSING),
  refused("replace at 1e0", [""], [replace("/1e0", false)], NO_INDEX),
  refused("replace at -", [1], [replace("/-", 2)], NO_INDEX),
  refused("replace one past the last", [1], [replace("/1", 2)], BEYOND),

  refused("copy from 1e0", { list: [1, 2] }, [copy("/list/1e0", "/b")], NO_INDEX),
  refused("copy of what is not there", { a: 1 }, [copy("/b", "/c")], MISSING),
  refused("move from 1e0", { list: [1, 2] }, [move("/list/1e0", "/b")], NO_INDEX),
  refused("move of what is not there", { a: 1 }, [move("/b", "/a")], MISSING),
  refused("move into itself", { a: { b: 1 } }, [move("/a", "/a/b")], "into itself"),
  refused("move of the document into itself", { a: 1 }, [move("", "/b")], "into itself"),
  refused("move of nothing onto itself", { a: 1 }, [move("/b", "/b")], MISSING),
  refused("move to one past what is left", [1, 2], [move("/0", "/2")], BEYOND),
  refused("copy to beyond the end", { a: 1, list: [] }, [copy("/a", "/list/1")], BEYOND),

  refused("test for another value", { in: { list: [1, 2] } }, [test("/in", [1])], OTHER),
  refused("test for another string", { a: "x" }, [test("/a", "y")], OTHER),
  refused("test for a number where a string is", { "/": 9 }, [test("/~1", "9")], OTHER),
  refused("test for an array where an object is", { a: {} }, [test("/a", [])], OTHER),
  refused("test of what is not there", { a: 1 }, [test("/b", null)], MISSING),
  refused("test at 1e0", ["a", "b"], [test("/1e0", "b")], NO_INDEX),
  refused("test at 00", ["a", "b"], [test("/00", "a")], NO_INDEX),
  refused("test at 01", ["a", "b"], [test("/01", "b")], NO_INDEX),

  refused("add without a value", [1], [{ op: "add", path: "/-" }], NO_VALUE),
  refused("replace without a value", [1], [{ op: "replace", path: "/0" }], NO_VALUE),
  refused("test without a value", [null], [{ op: "test", path: "/0" }], NO_VALUE),
  refused("test without a value of false", [false], [{ op: "test", path: "/0" }], NO_VALUE),
  refused("copy without from", [1], [{ op: "copy", path: "/-" }], 'its "from" is no string'),
  refused("move without from", { a: 1 }, [{ op: "move", path: "" }], 'its "from" is no string'),
  refused("an operation without path", {}, [{ op: "add", value: 1 }], 'its "path" is no string'),
  refused("a path that is null", {}, [{ op: "add", path: null, value: 1 }], 'its "path" is no string'),
  refused("a path without a slash", { a: 1 }, [add("a", 2)], "no JSON Pointer"),
  refused("a path with a bare tilde", { "a~": 1 }, [test("/a~", 1)], "no JSON Pointer"),
  refused("an operation that there is not", { a: 1 }, [{ op: "spam", path: "/a", value: 1 }], "no such operation"),
  refused("an operation without op", { a: 1 }, [{ path: "/a", value: 1 }], "no such operation"),

  refused("an operation that is null", {}, [null], "it is no object"),
  refused("an operation that is a list", {}, [[]], "it is no object"),

  refused("__proto__", {}, [add("/__proto__/polluted", true)], "names a prototype"),
  refused("__proto__ as the last token", {}, [add("/__proto__", {})], "names a prototype"),
  refused(
    "constructor/prototype",
    { constructor: {} },
    [add("/constructor/prototype/polluted", true)],
    "names a prototype",
  ),
  refused("__proto__ in from", {}, [copy("/__proto__", "/a")], "names a prototype"),
  refused("what every object inherits", {}, [copy("/toString", "/a")], MISSING),
  refused("what every array inherits", { list: [1] }, [replace("/list/length", 0)], NO_INDEX),
];
