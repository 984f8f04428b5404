import { type FileStep, FileSystemError } from "../../domain/index.ts";

/** A path left the directory that it had to stay in, or contained a symbolic link where none may be followed. */
export class PathEscapes extends FileSystemError {
  /** Whether the request forbade all symbolic links. */
  readonly noSymlinks: boolean;

  constructor(step: FileStep, errno: string, noSymlinks: boolean) {
    super(step, errno);
    this.noSymlinks = noSymlinks;
  }
}
