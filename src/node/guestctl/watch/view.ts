import type { Health } from "../../client/index.ts";
import { printable, unreadyReason } from "../output.ts";
import type { Answer, Sample } from "./watch.ts";

/** A line of the screen. Styles name the meaning, not the appearance. */
export interface ViewLine {
  readonly text: string;
  readonly style?: "title" | "good" | "bad" | "faint";
}

/** What the screen shows besides the samples. */
export interface ViewFrame {
  readonly place: string;
  readonly intervalMs: number;
  readonly now: Date;
  readonly cols: number;
  readonly rows: number;
}

const KEYS: ViewLine = { text: "q leaves", style: "faint" };

/** The lines of a screen, cut to its size. */
export function viewLines(history: History, frame: ViewFrame): ViewLine[] {
  const { cols, rows } = frame;
  const head = [titleLine(frame), ...stateLines(history, frame.now), ...answerLines(history)];
  const room = Math.max(0, rows - head.length - 3);
  const events = history.events.slice(0, room).map(({ time, text }) => ({ text: `${clockTime(time)}  ${text}` }));
  const blank: ViewLine = { text: "" };
  const lines = [...head, blank, ...events, blank, KEYS];
  return lines.slice(0, rows).map(({ text, ...rest }) => ({ text: printable(text).slice(0, cols), ...rest }));
}

function titleLine({ place, intervalMs, now, cols }: ViewFrame): ViewLine {
  const right = `every ${intervalMs / 1000} s  ${clockTime(now)}`;
  const left = `guestctl watch  ${place}`.slice(0, Math.max(0, cols - right.length - 1));
  return { text: `${left.padEnd(cols - right.length)}${right}`, style: "title" };
}

function stateLines({ latest, lostSince, answer }: History, now: Date): ViewLine[] {
  if (latest === undefined) return [row("state", "connecting")];
  if (!("error" in latest)) {
    const isReady = latest.health.ready;
    return [{ ...row("state", `up, ${readiness(latest.health)}`), style: isReady ? "good" : "bad" }];
  }
  const forMs = now.getTime() - (lostSince ?? latest.time).getTime();
  const state = `${answer === undefined ? "no answer" : "lost"} for ${seconds(forMs)}, trying again`;
  return [
    { ...row("state", state), style: "bad" },
    { ...row("", `${latest.error.message} [${latest.error.status}]`), style: "bad" },
  ];
}

function answerLines({ answer, answered, asked, lostSince }: History): ViewLine[] {
  const answers = `${answered} of ${asked}`;
  if (answer === undefined) return [row("answers", answers)];
  const { health, roundTripMs, clockErrorMs, agentVersion } = answer;
  const lines = [
    row("activity", since(health.lastUserActivity, health.guestTime)),
    row("idle", since(health.idleDeclared, health.guestTime)),
    row("guest time", clockText(health.guestTime, clockErrorMs)),
    row("answers", `${answers}, the last in ${roundTripMs.toFixed(1)} ms`),
    row("agent", `version ${agentVersion ?? "unknown"}`),
  ];
  // The last known values are useful, but must not look current.
  return lostSince === undefined ? lines : lines.map((line) => ({ ...line, style: "faint" }));
}

function row(name: string, text: string): ViewLine {
  return { text: `${name.padEnd(12)}${text}` };
}

/** Compares times of the guest with its own clock, which may be far off. */
function since(time: Date | undefined, guestTime: Date | undefined): string {
  if (time === undefined) return "never";
  if (guestTime === undefined) return time.toISOString();
  const agoMs = guestTime.getTime() - time.getTime();
  return `${seconds(agoMs)} ago  ${time.toISOString()}`;
}

function clockText(guestTime: Date | undefined, clockErrorMs: number): string {
  // An agent may be older than the field.
  if (guestTime === undefined) return "unknown";
  return `${guestTime.toISOString()}  ${signedSeconds(clockErrorMs)} to this host`;
}

function seconds(ms: number): string {
  return `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`;
}

/** Time of day on this host. */
function clockTime(time: Date): string {
  return time.toTimeString().slice(0, 8);
}

/** As many as fit on any screen. */
const EVENTS_KEPT = 200;
/** If a guest's clock moves that much against the host's, it was stepped or stopped. */
const CLOCK_JUMP_MS = 1_000;

/** Something that changed, and when it was seen. */
interface WatchEvent {
  readonly time: Date;
  readonly text: string;
}

/** What a watch has seen so far. */
export interface History {
  /** The last sample. */
  readonly latest: Sample | undefined;
  /** The last answer, however old. */
  readonly answer: Answer | undefined;
  /** Since when there has been no answer; undefined while there is one. */
  readonly lostSince: Date | undefined;
  /** Number of samples, and of the answers among them. */
  readonly asked: number;
  readonly answered: number;
  /** The newest first. */
  readonly events: readonly WatchEvent[];
}

/** That of a watch which has seen nothing yet. */
export const NO_HISTORY: History = {
  latest: undefined,
  answer: undefined,
  lostSince: undefined,
  asked: 0,
  answered: 0,
  events: [],
};

/** The history with one sample more. */
export function withSample(history: History, sample: Sample): History {
  const { time } = sample;
  const news = newsOf(history, sample).map((text) => ({ time, text }));
  const events = [...news.toReversed(), ...history.events].slice(0, EVENTS_KEPT);
  const seen = { ...history, latest: sample, asked: history.asked + 1, events };
  if ("error" in sample) return { ...seen, lostSince: history.lostSince ?? time };
  return { ...seen, answer: sample, answered: history.answered + 1, lostSince: undefined };
}

/** What a sample shows that was not so before, the oldest first. */
function newsOf({ answer: before, lostSince }: History, now: Sample): string[] {
  if ("error" in now) return lostSince === undefined ? [`lost: ${now.error.message}`] : [];
  const texts: string[] = [];
  if (lostSince !== undefined) {
    texts.push(`back after ${((now.time.getTime() - lostSince.getTime()) / 1000).toFixed(1)} s`);
  }
  if (before === undefined) return [...texts, now.health.ready ? "up and ready" : `up, ${readiness(now.health)}`];
  if (readiness(before.health) !== readiness(now.health)) texts.push(readiness(now.health));
  if (idleMs(before.health) !== idleMs(now.health)) texts.push("idle declared");
  if (before.agentVersion !== now.agentVersion) texts.push(`agent version ${now.agentVersion ?? "unknown"}`);
  const movedMs = now.clockErrorMs - before.clockErrorMs;
  if (Math.abs(movedMs) > CLOCK_JUMP_MS) texts.push(`guest clock moved by ${signedSeconds(movedMs)}`);
  return texts;
}

/** Ready or why not. */
function readiness(health: Health): string {
  return health.ready ? "ready" : `not ready (${unreadyReason(health)})`;
}

/** `+1.500 s`, `-0.002 s`. */
function signedSeconds(ms: number): string {
  return `${ms < 0 ? "-" : "+"}${(Math.abs(ms) / 1000).toFixed(3)} s`;
}

function idleMs({ idleDeclared }: Health): number | undefined {
  return idleDeclared === undefined ? undefined : idleDeclared.getTime();
}
