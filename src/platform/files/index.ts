export { guestFileSystem } from "./file-system.ts";
