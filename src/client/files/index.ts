export { FileContent } from "./read.ts";
export { type FileSource, type WriteFileOptions, type WriteFileResult, writeFile } from "./write.ts";
