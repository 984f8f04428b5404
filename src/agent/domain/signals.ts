/** Signal numbers that the agent uses (signal(7)). They are the same on all supported architectures. */
export const Signal = { HUP: 1, INT: 2, QUIT: 3, KILL: 9, TERM: 15 } as const;
