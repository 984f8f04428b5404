export { entropyFacts } from "./entropy-facts.ts";
export { guestKernel } from "./kernel.ts";
export { processRandomness } from "./process-randomness.ts";
