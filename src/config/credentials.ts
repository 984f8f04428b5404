import {
  type CredentialFile,
  credentialFileVersion,
  type DropFileCache,
  type ReadCredentialFile,
  readCredentialFile,
  rereadCredentialFile,
} from "./credential-file.ts";
import type { BootstrapFault } from "./variables.ts";

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
  readonly token: InstanceToken;
  readonly tls: TlsMaterial | undefined;
}

/** The instance token and the TLS material in force. Of the token only its digest is kept, once it is served. */
export class Credentials {
  /** Whether the token comes from a file, so that there can be a new one. */
  readonly tokenRotates: boolean;
  #material: Material;
  readonly #read: MaterialReader;
  /** Of every file that is read, what was read of it last, whether it came into force or not. */
  readonly #versions: Map<string, string>;

  private constructor(material: Material, read: MaterialReader, tokenRotates: boolean, versions: Map<string, string>) {
    this.#material = material;
    this.#read = read;
    this.tokenRotates = tokenRotates;
    this.#versions = versions;
  }

  /** Reads and checks all sources. `accepts` may spare the slower check of the TLS files. */
  static async load(sources: CredentialSources, accepts: AcceptsTlsMaterial = () => false): Promise<LoadedCredentials> {
    const read = materialReader(sources, accepts);
    const versions = new Map<string, string>();
    const { material, faults } = await read(remembering(versions, readCredentialFile));
    const tokenRotates = sources.token !== undefined && "file" in sources.token;
    return { credentials: material && new Credentials(material, read, tokenRotates, versions), faults };
  }

  /** Undefined where no TCP listener is configured. */
  get tls(): TlsMaterial | undefined {
    return this.#material.tls;
  }

  /** Forgets the token but for its digest: to be called before it is served, when the workload has started. */
  digestToken(): void {
    this.#material.token.digest();
  }

  /** Whether the candidate is the instance token. Constant time, and the same work for a missing one. */
  matchesToken(candidate: string | undefined): boolean {
    return this.#material.token.matches(candidate);
  }

  /** Which files were read last; equal to `presentVersion()` for as long as none of them has changed. */
  get readVersion(): string {
    return [...this.#versions.values()].join(";");
  }

  /** Which files are there now. Empty where there is no file to read. Never rejects. */
  async presentVersion(): Promise<string> {
    return (await Promise.all(Array.from(this.#versions.keys(), credentialFileVersion))).join(";");
  }

  /** The token in force, for nothing but to tell it from another one. */
  get currentToken(): object {
    return this.#material.token;
  }

  /** Reads the files again, with `dropFileCache` past the page cache. With faults everything stays as it was. */
  async reload(dropFileCache?: DropFileCache): Promise<readonly BootstrapFault[]> {
    const reread: ReadCredentialFile = (path) => rereadCredentialFile(path, dropFileCache);
    const { material, faults } = await this.#read(remembering(this.#versions, reread));
    if (material !== undefined) {
      this.#material = material;
      this.digestToken();
    }
    return faults;
  }
}

/** Keeps the version of every file that is read. */
function remembering(versions: Map<string, string>, readFile: ReadCredentialFile): ReadCredentialFile {
  return async (path) => {
    const file = await readFile(path);
    versions.set(path, file.version);
    return file;
  };
}

interface ReadMaterial {
  readonly material: Material | undefined;
  readonly faults: readonly BootstrapFault[];
}

type MaterialReader = (readFile: ReadCredentialFile) => Promise<ReadMaterial>;

/** A token given by value is one object for all readings. */
function materialReader(sources: CredentialSources, accepts: AcceptsTlsMaterial): MaterialReader {
  const readToken = tokenReader(sources.token);
  return async (readFile) => {
    const [token, tls] = await Promise.all([readToken(readFile), readTlsMaterial(sources.tls, accepts, readFile)]);
    const faults = [...token.faults, ...tls.faults];
    const material =
      token.token === undefined || faults.length > 0 ? undefined : { token: token.token, tls: tls.material };
    return { material, faults };
  };
}

interface ReadToken {
  readonly token: InstanceToken | undefined;
  readonly faults: readonly BootstrapFault[];
}

function tokenReader(source: CredentialSources["token"]): (readFile: ReadCredentialFile) => Promise<ReadToken> {
  if (source === undefined) return () => Promise.resolve({ token: undefined, faults: [] });
  if ("value" in source) {
    const token = check(source.value, "SVC_INSTANCE_TOKEN", "");
    return () => Promise.resolve(token);
  }
  return async (readFile) => {
    const file = await readFile(source.file);
    return "problem" in file
      ? { token: undefined, faults: [{ variable: "SVC_INSTANCE_TOKEN_FILE", problem: file.problem }] }
      : check(file.bytes.toString("latin1").replace(/\r?\n$/, ""), "SVC_INSTANCE_TOKEN_FILE", "the token in the file ");
  };
}

function check(token: string, variable: BootstrapFault["variable"], subject: string): ReadToken {
  const problem = tokenProblem(token);
  return problem === undefined
    ? { token: new InstanceToken(token), faults: [] }
    : { token: undefined, faults: [{ variable, problem: subject + problem }] };
}

/** What the management listener needs for mutual TLS, as PEM. */
export interface TlsMaterial {
  /** The server's certificate, followed by intermediate ones if any. */
  readonly cert: Buffer;
  /** Its private key. */
  readonly key: Buffer;
  /** The authorities whose client certificates are accepted. */
  readonly clientCa: Buffer;
}

/** Paths of the three TLS files; undefined: not given. */
interface TlsFiles {
  readonly cert: string | undefined;
  readonly key: string | undefined;
  readonly clientCa: string | undefined;
}

/** Whether a listener could start with the material. False also where that cannot be told; then it is found out here. */
export type AcceptsTlsMaterial = (material: TlsMaterial) => boolean;

/**
 * Reads those TLS files that are given and checks that a listener could start with them. Material only when all three
 * are there and without faults.
 */
async function readTlsMaterial(
  files: TlsFiles,
  accepts: AcceptsTlsMaterial,
  readFile: ReadCredentialFile,
): Promise<{ material: TlsMaterial | undefined; faults: readonly BootstrapFault[] }> {
  const read = async (path: string | undefined): Promise<CredentialFile | undefined> =>
    path === undefined ? undefined : readFile(path);
  const [cert, key, clientCa] = await Promise.all([read(files.cert), read(files.key), read(files.clientCa)]);
  if (cert === undefined && key === undefined && clientCa === undefined) return { material: undefined, faults: [] };
  const material = materialOf(cert, key, clientCa);
  if (material !== undefined && accepts(material)) return { material, faults: [] };
  // Only a fault needs what this loads: Node's whole crypto and TLS, 8 ms that the workload would wait for.
  const { tlsFaults } = await import("./tls-faults.ts");
  const faults = tlsFaults({ cert, key, clientCa });
  return { material: faults.length === 0 ? material : undefined, faults };
}

function materialOf(...files: readonly (CredentialFile | undefined)[]): TlsMaterial | undefined {
  const [cert, key, clientCa] = files.map((file) => (file === undefined || "problem" in file ? undefined : file.bytes));
  return cert === undefined || key === undefined || clientCa === undefined ? undefined : { cert, key, clientCa };
}

/** Longest token accepted: it travels in the headers of every call. */
const TOKEN_LIMIT_BYTES = 4096;

/**
 * What keeps a value from being a token, or undefined. The contract leaves the format open, so anything that can be a
 * gRPC metadata value (gRPC over HTTP/2, "ASCII-Value") passes, spaces excepted. Length says nothing about strength:
 * there is no least one.
 */
function tokenProblem(token: string): string | undefined {
  if (token === "") return "is empty";
  if (token.length > TOKEN_LIMIT_BYTES) return `is longer than ${TOKEN_LIMIT_BYTES} characters`;
  return /^[\x21-\x7e]+$/.test(token) ? undefined : "may hold visible ASCII characters only, and no spaces";
}

/** The instance token; once it has been digested, its SHA-256 alone. */
class InstanceToken {
  #token: string | undefined;
  #digest: Buffer | undefined;

  constructor(token: string) {
    this.#token = token;
  }

  /** Forgets the token but for its digest. Not at once: it loads Node's crypto, and the workload need not wait for that. */
  digest(): Buffer {
    this.#digest ??= digestOf(this.#token ?? "");
    this.#token = undefined;
    return this.#digest;
  }

  /** Compares in constant time, with the same work for a missing candidate. */
  matches(candidate: string | undefined): boolean {
    const { timingSafeEqual } = process.getBuiltinModule("node:crypto");
    const equal = timingSafeEqual(this.digest(), digestOf(candidate ?? ""));
    return equal && candidate !== undefined;
  }
}

function digestOf(text: string): Buffer {
  return process.getBuiltinModule("node:crypto").hash("sha256", text, "buffer");
}
