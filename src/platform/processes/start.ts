import { SpawnError } from "../../domain/index.ts";
import { type Addon, errnoName, type NativeSpawnOptions } from "../../native/index.ts";

/** What an aborted start is rejected with. */
export function startAborted(): SpawnError {
  return new SpawnError("killed", "ECANCELED");
}

/**
 * Starts a child; resolves with its process id once it has become the command. Rejects with SpawnError. An abort that
 * comes at the very end may go unnoticed: the caller looks at the signal again.
 */
export function start(addon: Addon, options: NativeSpawnOptions, abort: AbortSignal | undefined): Promise<number> {
  return new Promise((resolve, reject) => {
    const onAbort = (): void => {
      if (handle !== undefined) addon.abortSpawn(handle);
    };
    const handle = addon.spawn(options, (pid, step, errno) => {
      abort?.removeEventListener("abort", onAbort);
      if (errno === 0) resolve(pid);
      else reject(new SpawnError(step, errnoName(errno)));
    });
    if (handle === undefined) reject(new SpawnError("prepare", "ENOMEM"));
    else abort?.addEventListener("abort", onAbort);
  });
}
