import { readCredentialFile } from "./credential-file.ts";
import type { BootstrapFault } from "./faults.ts";
import { readTlsMaterial, type TlsFiles, type TlsMaterial } from "./tls-material.ts";
import { TokenDigest, tokenProblem } from "./token.ts";

/** Where the credentials come from. */
export interface CredentialSources {
  /** The token itself, or the file that holds it (one trailing line break is not part of it); undefined: none given. */
  readonly token: { readonly value: string } | { readonly file: string } | undefined;
  readonly tls: TlsFiles;
}

/** Outcome of reading the sources: credentials only with a token and without faults. */
export interface LoadedCredentials {
  readonly credentials: Credentials | undefined;
  readonly faults: readonly BootstrapFault[];
}

interface Material {
  readonly token: TokenDigest;
  readonly tls: TlsMaterial | undefined;
}

/** The instance token and the TLS material in force. The token itself is not kept, only its digest. */
export class Credentials {
  #material: Material;
  readonly #read: () => Promise<ReadMaterial>;

  private constructor(material: Material, read: () => Promise<ReadMaterial>) {
    this.#material = material;
    this.#read = read;
  }

  /** Reads and checks all sources. */
  static async load(sources: CredentialSources): Promise<LoadedCredentials> {
    const read = materialReader(sources);
    const { material, faults } = await read();
    return { credentials: material && new Credentials(material, read), faults };
  }

  /** Undefined where no TCP listener is configured. */
  get tls(): TlsMaterial | undefined {
    return this.#material.tls;
  }

  /** Whether the candidate is the instance token. Constant time, and the same work for a missing one. */
  matchesToken(candidate: string | undefined): boolean {
    return this.#material.token.matches(candidate);
  }

  /** Reads the files again. With faults everything stays as it was. */
  async reload(): Promise<readonly BootstrapFault[]> {
    const { material, faults } = await this.#read();
    if (material !== undefined) this.#material = material;
    return faults;
  }
}

interface ReadMaterial {
  readonly material: Material | undefined;
  readonly faults: readonly BootstrapFault[];
}

/** A token given by value is digested once and forgotten. */
function materialReader(sources: CredentialSources): () => Promise<ReadMaterial> {
  const readToken = tokenReader(sources.token);
  return async () => {
    const [token, tls] = await Promise.all([readToken(), readTlsMaterial(sources.tls)]);
    const faults = [...token.faults, ...tls.faults];
    const material =
      token.digest === undefined || faults.length > 0 ? undefined : { token: token.digest, tls: tls.material };
    return { material, faults };
  };
}

interface ReadToken {
  readonly digest: TokenDigest | undefined;
  readonly faults: readonly BootstrapFault[];
}

function tokenReader(source: CredentialSources["token"]): () => Promise<ReadToken> {
  if (source === undefined) return () => Promise.resolve({ digest: undefined, faults: [] });
  if ("value" in source) {
    const token = digest(source.value, "SVC_INSTANCE_TOKEN", "");
    return () => Promise.resolve(token);
  }
  return async () => {
    const file = await readCredentialFile(source.file);
    return "problem" in file
      ? { digest: undefined, faults: [{ variable: "SVC_INSTANCE_TOKEN_FILE", problem: file.problem }] }
      : digest(
          file.bytes.toString("latin1").replace(/\r?\n$/, ""),
          "SVC_INSTANCE_TOKEN_FILE",
          "the token in the file ",
        );
  };
}

function digest(token: string, variable: BootstrapFault["variable"], subject: string): ReadToken {
  const problem = tokenProblem(token);
  return problem === undefined
    ? { digest: new TokenDigest(token), faults: [] }
    : { digest: undefined, faults: [{ variable, problem: subject + problem }] };
}
