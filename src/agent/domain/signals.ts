/** Numbers of the signals that the agent knows (signal(7)); equal on every architecture that it runs on. */
export const Signal = { HUP: 1, INT: 2, QUIT: 3, KILL: 9, TERM: 15 } as const;
