/**
 * The module that the copy thread runs. In the built packages, this is a data: URL that contains the bundled module,
 * because a program that is bundled with the library has no separate file for it.
 */
export const THREAD_MODULE: URL = new URL("./main.ts", import.meta.url);
