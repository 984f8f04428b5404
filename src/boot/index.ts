export { boot } from "./boot.ts";
