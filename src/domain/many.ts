/** After so many arguments or variables, all others get a turn. */
export const STRINGS_A_TURN = 16_384;

/** Lets all others have a turn of the event loop. */
export function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
