/** Reasons why an agent for tests could not be started; docs/node/client.md lists them. */
export type TestAgentCode =
  | "AGENT_NOT_FOUND"
  | "AGENT_NOT_STARTED"
  | "CREDENTIALS_FAILED"
  | "INVALID_OPTION"
  | "MISSING_PACKAGE"
  | "NO_FREE_PORT";

/** Thrown if an agent for tests could not be started. The message says why, and what to do. */
export class TestAgentError extends Error {
  override readonly name = "TestAgentError";
  readonly code: TestAgentCode;

  constructor(code: TestAgentCode, message: string, cause?: unknown) {
    super(message, { cause });
    this.code = code;
  }
}
