/**
 * The module of the thread for copies. In the built packages, this is a data: URL with the bundled module: a program
 * that is bundled with the library has no file for it.
 */
export const THREAD_MODULE: URL = new URL("./main.ts", import.meta.url);
