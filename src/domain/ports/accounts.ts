/** The user database of the image. */
export interface Accounts {
  /** Bytes of /etc/passwd; empty where there is no such file. */
  passwd(): Promise<Uint8Array>;
  /** Bytes of /etc/group; empty where there is no such file. */
  group(): Promise<Uint8Array>;
}
