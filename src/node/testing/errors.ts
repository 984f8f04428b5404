/** An agent for tests could not be started. The message says why, and what to do. */
export class TestAgentError extends Error {
  override readonly name = "TestAgentError";
}
