export { guestctl } from "./guestctl.ts";
