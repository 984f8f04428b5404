import { setTimeout as pause } from "node:timers/promises";
import {
  FileTree,
  type WatchEvent,
  WatchEventKind,
  type WatchResponse,
} from "../../../shared/gen/svc/guest/v1alpha1/file_tree_pb.ts";
import { checkOptions } from "../arguments.ts";
import { type Channel, clientClosed } from "../grpc/channel.ts";
import { type KeptOptions, resumeTimeoutOf } from "../commands/keep.ts";
import { notRedialled, RedialledChannel } from "../grpc/link/redialled.ts";
import type { Names } from "../options.ts";
import { received } from "../grpc/received.ts";
import { growingPauses } from "../grpc/retry.ts";
import { isRefusal, mayContinue } from "../errors/transient.ts";
import { TimeLimit } from "../time-limit.ts";
import { type GuestPath, PLACE, placeOf, type PlaceOptions } from "./path.ts";

/** Options of `watch`. An option that Node's fs.watch also has is named as in fs.watch. */
export interface WatchOptions extends PlaceOptions, Pick<KeptOptions, "resume"> {
  /** Also watch all directories below the watched one, including those that are created later. Default: false. */
  readonly recursive?: boolean | undefined;
  /** Report only entries that match one of these glob patterns, such as "*.ts". Default: everything. */
  readonly names?: readonly string[] | undefined;
  /** Glob patterns of entries to ignore, and of directories not to watch, such as "node_modules". Default: none. */
  readonly ignore?: readonly string[] | undefined;
  /** Also watch file systems that are mounted below the directory. Default: false. */
  readonly crossMounts?: boolean | undefined;
}

/** A change in a watched directory. */
export interface DirectoryEvent {
  /**
   * Kind of the change. An entry that is moved into the watched directories from elsewhere is "created"; an entry that
   * is moved out of them is "removed". "closed": a file that was open for writing was closed. "ready": from now on all
   * changes are reported. "rescan": changes in this directory and below may have been missed, so list the directory
   * again.
   */
  readonly eventType: "ready" | "created" | "modified" | "closed" | "attributes" | "removed" | "moved" | "rescan";
  /**
   * Path relative to the watched directory; empty for that directory itself. Bytes that are not UTF-8 are replaced: see
   * `rawFilename`.
   */
  readonly filename: string;
  readonly rawFilename: Buffer;
  /** New path of an entry that was "moved". */
  readonly newFilename?: string;
  readonly rawNewFilename?: Buffer;
  readonly isDirectory: boolean;
  /** For "rescan": why changes in this directory are not reported, such as "EACCES". */
  readonly errno?: string;
}

const OPTIONS: Names<WatchOptions> = {
  ...PLACE,
  recursive: true,
  names: true,
  ignore: true,
  crossMounts: true,
  resume: true,
};
/** Names of the event kinds. A kind that is not listed here comes from a newer agent, and is reported as "rescan". */
const EVENT_TYPES: Readonly<Partial<Record<WatchEventKind, DirectoryEvent["eventType"]>>> = {
  [WatchEventKind.CREATED]: "created",
  [WatchEventKind.MODIFIED]: "modified",
  [WatchEventKind.CLOSED]: "closed",
  [WatchEventKind.ATTRIBUTES]: "attributes",
  [WatchEventKind.REMOVED]: "removed",
  [WatchEventKind.MOVED]: "moved",
};
const LONGEST_PAUSE_MS = 2_000;

/** The channel of a watch, and how the watch creates a new channel after a lost connection. */
export interface WatchParts {
  readonly channel: Channel;
  /** Creates a channel to the agent. */
  readonly dial: () => Promise<Channel>;
  /** Whether each attempt to reconnect calls `dial`. This is necessary if the credentials may have changed. */
  readonly alwaysDials: boolean;
}

/** Yields the events of a directory. Reconnects as described at Files.watch. Fails with GuestError. */
export function watchDirectory(
  { channel, dial, alwaysDials }: WatchParts,
  path: GuestPath,
  options: WatchOptions,
): AsyncIterableIterator<DirectoryEvent, undefined, undefined> {
  checkOptions("the options of watch()", options, OPTIONS);
  const { recursive = false, names = [], ignore = [], crossMounts = false, resume = true, ...call } = options;
  const request = { ...placeOf(path, call), recursive, names: [...names], ignore: [...ignore], crossMounts };
  const resumeMs = resumeTimeoutOf({ resume });
  const calls = new RedialledChannel(channel, dial);
  const { closed } = channel;
  // This limit applies to the whole watch, including its reconnects.
  const limit = new TimeLimit(call.requestTimeoutMs);
  let wasBegun = false;
  const decode = ({ watching, events }: WatchResponse): DirectoryEvent[] => {
    const first = { filename: "", rawFilename: Buffer.alloc(0), isDirectory: true };
    const begins = watching ? [{ ...first, eventType: wasBegun ? "rescan" : "ready" } as const] : [];
    wasBegun ||= watching;
    return [...begins, ...events.map(eventOf)];
  };
  const withLimit = (): PlaceOptions => ({ ...call, requestTimeoutMs: limit.left() });
  const left = new AbortController();
  let current: AsyncIterableIterator<DirectoryEvent, undefined, undefined> | undefined;
  const values = eventsOf();
  return {
    next: () => values.next(),
    return: () => {
      left.abort();
      void current?.return?.();
      return values.return(undefined);
    },
    [Symbol.asyncIterator]() {
      return this;
    },
  };

  async function* eventsOf(): AsyncGenerator<DirectoryEvent, undefined, undefined> {
    let pauses = growingPauses(LONGEST_PAUSE_MS);
    let lostAtMs: number | undefined;
    let dials = false;
    const signal = AbortSignal.any([left.signal, closed, ...(call.signal ? [call.signal] : [])]);
    try {
      for (;;) {
        try {
          if (dials) await limit.within(calls.renew(), notRedialled, signal);
          current = received(calls.current, FileTree.method.watch, request, withLimit(), { decode, closed });
          for await (const event of current) {
            lostAtMs = undefined;
            pauses = growingPauses(LONGEST_PAUSE_MS);
            yield event;
          }
          return undefined;
        } catch (error) {
          if (closed.aborted && !left.signal.aborted && call.signal?.aborted !== true) throw clientClosed();
          lostAtMs ??= performance.now();
          const isOver = left.signal.aborted || performance.now() - lostAtMs >= resumeMs;
          if (!wasBegun || isOver || !mayContinue(error)) throw error;
          dials = alwaysDials || isRefusal(error);
        }
        // If the signal is aborted, only end the pause: the next attempt then throws the error of an aborted call.
        await pause(pauses.next().value, undefined, { signal }).catch(() => undefined);
      }
    } finally {
      calls.close();
    }
  }
}

function eventOf({ kind, path, newPath, directory, errno }: WatchEvent): DirectoryEvent {
  const [rawFilename, rawNewFilename] = [Buffer.from(path), Buffer.from(newPath)];
  return {
    eventType: EVENT_TYPES[kind] ?? "rescan",
    filename: rawFilename.toString(),
    rawFilename,
    ...(kind === WatchEventKind.MOVED && { newFilename: rawNewFilename.toString(), rawNewFilename }),
    isDirectory: directory,
    ...(errno !== "" && { errno }),
  };
}
