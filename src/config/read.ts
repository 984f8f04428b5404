/** A value read from a bootstrap variable, and all that is wrong with it. The value counts only without problems. */
export interface Read<Value> {
  readonly value: Value;
  readonly problems: readonly string[];
}
