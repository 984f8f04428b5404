import { connect } from "node:net";
import { setTimeout as pause } from "node:timers/promises";

const ATTEMPT_MS = 2_000;

/** What the guest's oracle can be asked (test/vm/guest/oracle.c). */
export type Question = "random" | "vdso" | "clocks";

function attempt(port: number, questions: readonly Question[]): Promise<string[]> {
  return new Promise((resolve, reject) => {
    const socket = connect(port, "127.0.0.1");
    let text = "";
    socket.setTimeout(ATTEMPT_MS, () => socket.destroy(new Error("no answer")));
    socket.setEncoding("utf8").on("data", (part: string) => {
      text += part;
      const lines = text.split("\n").slice(0, -1);
      if (lines.length === questions.length) {
        resolve(lines);
        socket.destroy();
      }
    });
    socket.on("error", reject).on("close", () => reject(new Error("closed without an answer")));
    socket.write(questions.map((question) => `${question}\n`).join(""));
  });
}

/**
 * Asks the oracle; one answer a question. Waits for a guest that is still booting: QEMU's network accepts before
 * the guest listens.
 */
export async function ask(port: number, questions: readonly Question[], limitMs = 90_000): Promise<string[]> {
  const deadline = performance.now() + limitMs;
  for (;;) {
    try {
      return await attempt(port, questions);
    } catch (error) {
      if (performance.now() > deadline) throw error;
      await pause(50);
    }
  }
}
