import { accessSync, constants, statSync } from "node:fs";
import { join, resolve } from "node:path";
import { TestAgentError } from "./errors.ts";

/** Environment variable with the path of the guest-agent program for tests. */
export const AGENT_VARIABLE = "GUEST_AGENT";
/** Directory of this package. The project's build creates the agent's directory beside it. */
const PACKAGE_DIRECTORY = join(import.meta.dirname, "../../..");

/**
 * Finds the agent program: the given path, the path in GUEST_AGENT, or the built program beside this package. Throws
 * TestAgentError.
 */
export function agentProgram(given: string | undefined, named: string | undefined): string {
  if (process.platform !== "linux") {
    throw new TestAgentError(
      "AGENT_NOT_FOUND",
      `the agent runs on Linux only, and this is ${process.platform}: test there, or in a container`,
    );
  }
  if (given !== undefined) return checked(given, 'the option "agent"');
  if (named !== undefined && named !== "") return checked(named, `the variable ${AGENT_VARIABLE}`);
  const beside = resolve(PACKAGE_DIRECTORY, "..", `linux-${process.arch}`, "guest-agent");
  if (isProgram(beside)) return beside;
  throw new TestAgentError(
    "AGENT_NOT_FOUND",
    `the program guest-agent was not found: set ${AGENT_VARIABLE} or the option "agent" to its path. It is in the release's archive guest-agent-VERSION-linux-${process.arch}.tar.gz`,
  );
}

function checked(path: string, source: string): string {
  if (isProgram(path)) return resolve(path);
  const isDirectory = statSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
  throw new TestAgentError(
    "AGENT_NOT_FOUND",
    isDirectory
      ? `${source} is ${path}, which is a directory; set it to the program in this directory: ${join(path, "guest-agent")}`
      : `${source} is ${path}, which is not an executable program; set it to the path of the program guest-agent of a release`,
  );
}

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
}
