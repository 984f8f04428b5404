export { guestFacts } from "./guest-facts.ts";
