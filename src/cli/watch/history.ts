import { timestampMs } from "@bufbuild/protobuf/wkt";
import type { HealthResponse } from "../../client/index.ts";
import type { Answer, Sample } from "./sampler.ts";

/** As many as fit on any screen. */
const EVENTS_KEPT = 200;
/** A guest's clock that moves that much against the host's was stepped, or stood still. */
const CLOCK_JUMP_MS = 1_000;

/** Something that changed, and when it was seen. */
export interface WatchEvent {
  readonly time: Date;
  readonly text: string;
}

/** What a watch has seen so far. */
export class History {
  readonly #events: WatchEvent[] = [];
  #latest: Sample | undefined;
  #answer: Answer | undefined;
  #lostSince: Date | undefined;
  #asked = 0;
  #answered = 0;

  /** The last look. */
  get latest(): Sample | undefined {
    return this.#latest;
  }

  /** The last answer, however old. */
  get answer(): Answer | undefined {
    return this.#answer;
  }

  /** Since when there has been no answer; undefined while there is one. */
  get lostSince(): Date | undefined {
    return this.#lostSince;
  }

  /** The newest first. */
  get events(): readonly WatchEvent[] {
    return this.#events;
  }

  /** How many looks there were, and how many gave an answer. */
  get counts(): { readonly asked: number; readonly answered: number } {
    return { asked: this.#asked, answered: this.#answered };
  }

  /** Takes the next look. */
  add(sample: Sample): void {
    this.#asked += 1;
    this.#latest = sample;
    if ("error" in sample) {
      if (this.#lostSince === undefined) this.#note(sample.time, `lost: ${sample.error.message}`);
      this.#lostSince ??= sample.time;
      return;
    }
    this.#answered += 1;
    if (this.#lostSince !== undefined) {
      const lostMs = sample.time.getTime() - this.#lostSince.getTime();
      this.#note(sample.time, `back after ${(lostMs / 1000).toFixed(1)} s`);
    }
    for (const text of changes(this.#answer, sample)) this.#note(sample.time, text);
    this.#lostSince = undefined;
    this.#answer = sample;
  }

  #note(time: Date, text: string): void {
    this.#events.unshift({ time, text });
    this.#events.splice(EVENTS_KEPT);
  }
}

/** What is different between two answers. */
function changes(before: Answer | undefined, now: Answer): string[] {
  if (before === undefined) return [now.health.ready ? "up and ready" : `up, ${readiness(now.health)}`];
  const texts: string[] = [];
  if (readiness(before.health) !== readiness(now.health)) texts.push(readiness(now.health));
  if (idleMs(before.health) !== idleMs(now.health)) texts.push("idle declared");
  if (before.agentVersion !== now.agentVersion) texts.push(`agent version ${now.agentVersion ?? "unknown"}`);
  const movedMs = now.clockErrorMs - before.clockErrorMs;
  if (Math.abs(movedMs) > CLOCK_JUMP_MS) texts.push(`guest clock moved by ${signedSeconds(movedMs)}`);
  return texts;
}

/** Ready or why not. */
export function readiness({ ready, readyCmdExit }: HealthResponse): string {
  if (ready) return "ready";
  return readyCmdExit < 0 ? "not ready (ready_cmd: no verdict yet)" : `not ready (ready_cmd: exit ${readyCmdExit})`;
}

/** `+1.500 s`, `-0.002 s`. */
export function signedSeconds(ms: number): string {
  return `${ms < 0 ? "-" : "+"}${(Math.abs(ms) / 1000).toFixed(3)} s`;
}

function idleMs({ idleDeclared }: HealthResponse): number | undefined {
  return idleDeclared === undefined ? undefined : timestampMs(idleDeclared);
}
