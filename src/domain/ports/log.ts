/** Severity, least first. */
export type LogLevel = "debug" | "info" | "warn" | "error";

/** Fields of an event. Never a token, key, environment value, argument or file content. */
export type LogFields = Readonly<Record<string, string | number | boolean | undefined>>;

/** One event a call; `event` is a stable snake_case name. */
export interface Log {
  debug(event: string, fields?: LogFields): void;
  info(event: string, fields?: LogFields): void;
  warn(event: string, fields?: LogFields): void;
  error(event: string, fields?: LogFields): void;
}
