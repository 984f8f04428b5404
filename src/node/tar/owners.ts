/** Which owner and group a copy gives its entries. */
export interface Owners {
  /** The numbers that the source has. Default: false. */
  readonly keepOwners?: boolean | undefined;
  /** The number that all entries get instead; undefined: none. */
  readonly uid?: number | undefined;
  readonly gid?: number | undefined;
}

/** The owner of an entry; undefined: that of any new file. */
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
