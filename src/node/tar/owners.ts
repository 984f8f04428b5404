/** Owner and group of the entries of a copy. */
export interface Owners {
  /** Keep the user and group ids of the source. Default: false. */
  readonly keepOwners?: boolean | undefined;
  /** User id of all entries, which overrides `keepOwners`. */
  readonly uid?: number | undefined;
  readonly gid?: number | undefined;
}

/** Returns the owner of an entry; undefined means the default owner of a new file. */
export function ownerIn(
  { keepOwners = false, uid, gid }: Owners,
  source: { readonly uid?: number | bigint | undefined; readonly gid?: number | bigint | undefined },
): { readonly uid: number | undefined; readonly gid: number | undefined } {
  return {
    uid: uid ?? (keepOwners ? numberOf(source.uid) : undefined),
    gid: gid ?? (keepOwners ? numberOf(source.gid) : undefined),
  };
}

function numberOf(owner: number | bigint | undefined): number | undefined {
  return owner === undefined ? undefined : Number(owner);
}
