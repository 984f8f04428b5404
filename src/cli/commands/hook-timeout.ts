/** Option for the time that a hook may take. */
export const HOOK_TIMEOUT = {
  type: "string",
  argument: "DURATION",
  help: "time allowed for the hook, such as 500ms, 5s or 2m (default 30s, at most 10m)",
} as const;
