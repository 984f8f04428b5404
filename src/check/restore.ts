import type { CheckOf } from "./check.ts";

/** Whether restore duties can step the clock. */
export const clock: CheckOf = ({ clockStep }) => ({
  name: "clock",
  ok: clockStep === undefined,
  found: clockStep ?? "can be stepped",
  meaning:
    clockStep === undefined
      ? "restore duties set the time"
      : "RunRestoreDuties reports clock_set and clock_stepped false. Give CAP_SYS_TIME in the first user namespace",
});

/** Whether restore duties can credit entropy. */
export const entropy: CheckOf = ({ entropy: { open, credit } }) => {
  const name = "entropy";
  if (open !== undefined) {
    const meaning = "RunRestoreDuties reports entropy_open; only the agent's own generator is fresh. Give /dev/urandom";
    return { name, ok: false, found: open, meaning };
  }
  return {
    name,
    ok: credit === undefined,
    found: credit ?? "can be credited",
    meaning:
      credit === undefined
        ? "restore duties credit what the host sends, and force a reseed"
        : "mixed in but not credited, and no reseed is forced. Give CAP_SYS_ADMIN in the first user namespace",
  };
};

/** Whether a forced reseed can be relied on. */
export const reseed: CheckOf = ({ entropy: { confirmsReseed } }) => ({
  name: "reseed",
  ok: confirmsReseed,
  found: confirmsReseed ? "confirmed" : "not confirmed",
  meaning: confirmsReseed
    ? "a reseed that the kernel reports has happened"
    : "before 5.18 the kernel may report a reseed that did not happen: crng_reseed:unverified",
});
