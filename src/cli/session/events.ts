import { once } from "node:events";
import type { Readable, Writable } from "node:stream";
import type { ExecResult } from "../../client/index.ts";
import type { Session } from "./attach.ts";
import { forwardSignals } from "./signals.ts";

/** Like `attach`, with output as one JSON object a line: started, stdout, stderr (data in base64), exit. */
export async function attachAsEvents(session: Session, host: NodeJS.Process): Promise<ExecResult> {
  const { process, isInteractive } = session;
  using _signals = forwardSignals(process, false, host);
  const emit = (event: object): Promise<void> => writeLine(host.stdout, event);
  const report = async (stream: Readable, name: "stdout" | "stderr"): Promise<void> => {
    for await (const chunk of stream as AsyncIterable<Buffer>) {
      await emit({ event: name, data: chunk.toString("base64") });
    }
  };
  if (isInteractive) host.stdin.pipe(process.stdin);
  try {
    const started = process.started.then((pid) => emit({ event: "started", pid }));
    const outputs = started.then(() =>
      Promise.all([report(process.stdout, "stdout"), report(process.stderr, "stderr")]),
    );
    const [result] = await Promise.all([process.wait(), outputs]);
    await emit({ event: "exit", ...inSnakeCase(result) });
    return result;
  } finally {
    if (isInteractive) {
      host.stdin.unpipe(process.stdin);
      host.stdin.pause();
    }
  }
}

async function writeLine(stream: Writable, event: object): Promise<void> {
  if (!stream.write(`${JSON.stringify(event)}\n`)) await once(stream, "drain");
}

/** Names as in the schema, as everywhere in guestctl's JSON. */
function inSnakeCase(result: ExecResult): Readonly<Record<string, unknown>> {
  const entries = Object.entries(result).map(([name, value]: [string, unknown]) => [
    name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`),
    value,
  ]);
  return Object.fromEntries(entries) as Record<string, unknown>;
}
