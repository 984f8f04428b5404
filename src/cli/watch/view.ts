import { type Timestamp, timestampDate } from "@bufbuild/protobuf/wkt";
import { type History, readiness, signedSeconds } from "./history.ts";
import type { Answer } from "./sampler.ts";

/** A line of the screen. Styles say what it means, not how it looks. */
export interface ViewLine {
  readonly text: string;
  readonly style?: "title" | "good" | "bad" | "faint";
}

/** What the screen shows besides what was seen. */
export interface ViewFrame {
  readonly place: string;
  readonly intervalMs: number;
  readonly now: Date;
  readonly cols: number;
  readonly rows: number;
}

const KEYS: ViewLine = { text: "q leaves", style: "faint" };

/** The lines of a screen, none longer or more than it has room for. */
export function viewLines(history: History, frame: ViewFrame): ViewLine[] {
  const { cols, rows } = frame;
  const head = [titleLine(frame), ...stateLines(history, frame.now), ...answerLines(history.answer, history)];
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

function answerLines(answer: Answer | undefined, { counts, lostSince }: History): ViewLine[] {
  const asked = `${counts.answered} of ${counts.asked}`;
  if (answer === undefined) return [row("answers", asked)];
  const { health, roundTripMs, clockErrorMs, agentVersion } = answer;
  const lines = [
    row("activity", since(health.lastUserActivity, health.guestTime)),
    row("idle", since(health.idleDeclared, health.guestTime)),
    row("guest time", clockText(health.guestTime, clockErrorMs)),
    row("answers", `${asked}, the last in ${roundTripMs.toFixed(1)} ms`),
    row("agent", `version ${agentVersion ?? "unknown"}`),
  ];
  // What was true once is still worth something, but must not be taken for the present.
  return lostSince === undefined ? lines : lines.map((line) => ({ ...line, style: "faint" }));
}

function row(name: string, text: string): ViewLine {
  return { text: `${name.padEnd(12)}${text}` };
}

/** Times of the guest are held against its own clock, which may be far off. */
function since(time: Timestamp | undefined, guestTime: Timestamp | undefined): string {
  if (time === undefined) return "never";
  if (guestTime === undefined) return dateText(time);
  const agoMs = timestampDate(guestTime).getTime() - timestampDate(time).getTime();
  return `${seconds(agoMs)} ago  ${dateText(time)}`;
}

function clockText(guestTime: Timestamp | undefined, clockErrorMs: number): string {
  // An agent may be older than the field.
  if (guestTime === undefined) return "unknown";
  return `${dateText(guestTime)}  ${signedSeconds(clockErrorMs)} to this host`;
}

function dateText(time: Timestamp | undefined): string {
  return time === undefined ? "unknown" : timestampDate(time).toISOString();
}

function seconds(ms: number): string {
  return `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`;
}

/** Of this host, as people read it on the wall. */
function clockTime(time: Date): string {
  return time.toTimeString().slice(0, 8);
}

/** What an agent says must not act on the terminal. */
function printable(text: string): string {
  return text.replaceAll(/\p{Cc}/gu, "?");
}
