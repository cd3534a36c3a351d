import type { Uid } from "../../src/protocol/words.ts";
import type { Batch, Lease } from "../../src/store/store.ts";
import { type Disk, memoryDisk } from "../../src/testing/outside.ts";

/**
 * A disk that is full now and then. As with a real one, a commit that fails fails for all that has gathered behind it: what its driver has
 * asked for by then does not come to be. To give the run back is possible again.
 *
 * @param faults - which appends fail, from 1, over all processes
 */
export function faultyDisk(faults: readonly number[]): Disk {
  const disk = memoryDisk();
  const failed = new Map<Uid, number>();
  let appends = 0;
  const fails = ({ uid, epoch }: Lease, { entries }: Batch): boolean => {
    appends += 1;
    if (faults.includes(appends)) failed.set(uid, epoch);
    return failed.get(uid) === epoch && entries.length > 0;
  };
  return {
    next(settings) {
      const store = disk.next(settings);
      return new Proxy(store, {
        get(target, name) {
          const member: unknown = Reflect.get(target, name);
          if (name === "append") {
            return (lease: Lease, batch: Batch) =>
              fails(lease, batch) ? Promise.reject(new Error("the disk is full")) : target.append(lease, batch);
          }
          return typeof member === "function" ? member.bind(target) : member;
        },
      });
    },
    remove: () => disk.remove(),
  };
}
