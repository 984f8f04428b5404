import { type FileStep, FileSystemError } from "../../domain/index.ts";

/** A path led out of the directory beneath which it had to stay, or over a symbolic link that may not be followed. */
export class PathEscapes extends FileSystemError {
  /** None is allowed. */
  readonly noSymlinks: boolean;

  constructor(step: FileStep, errno: string, noSymlinks: boolean) {
    super(step, errno);
    this.noSymlinks = noSymlinks;
  }
}
