import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, test } from "node:test";
import { promisify } from "node:util";
import { create, toBinary } from "@bufbuild/protobuf";
import {
  BOOTSTRAP_VARIABLES,
  BootstrapError,
  readBootstrap,
  tokenDigest,
  unknownVariables,
} from "../../../src/agent/config/index.ts";
import { issueCertificates } from "../../../src/node/credentials/certificates.ts";
import { HooksSchema } from "../../../src/shared/gen/svc/guest/v1alpha1/process_pb.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { channel, credentialDirectory, faultLines, MARKER, readFiles } from "./sandbox.ts";

const directory = forAllTests(await credentialDirectory());
const twoLines = await directory.write("two-lines", "one\ntwo\n");

const uid = process.getuid?.();
const unreadable = (path: string): string => `names ${path}, which user ${uid} cannot read (ENOENT)`;
const noSpec = (message: string, example: string): string =>
  `is neither JSON nor a binary svc.guest.v1alpha1.${message} in base64; expected, for example, ${example}`;
const MARK = "begins with a byte order mark (BOM, EF BB BF); save it as UTF-8 without one";
const NO_METADATA = "must contain only visible ASCII characters and no spaces";

describe("readBootstrap", () => {
  test("readBootstrap accepts the required variables alone and fills in the defaults", async () => {
    const configuration = await readBootstrap(channel(directory), readFiles);
    assert.deepEqual([configuration.guestPort, configuration.guestSocketPath], [7071, undefined]);
    assert.deepEqual([configuration.workloadSocketPath, configuration.logLevel], [undefined, "info"]);
    assert.deepEqual(configuration.process, {
      args: [],
      env: new Map(),
      cwd: "",
      user: "",
      readyCommand: undefined,
      stopGraceMs: 10_000,
      output: undefined,
    });
    assert.deepEqual(configuration.hooks, { preSnapshot: undefined, postRestore: undefined });
    assert.match(String(configuration.credentials.tls?.cert), /BEGIN CERTIFICATE/);
    assert.ok(configuration.credentials.matchesToken(tokenDigest(Buffer.from(directory.token))));
  });

  test("readBootstrap accepts a unix socket without TLS, and a token from a file", async () => {
    const configuration = await readBootstrap(
      [
        Buffer.from(`SVC_INSTANCE_TOKEN_FILE=${await directory.write("token", `${directory.token}\n`)}`),
        Buffer.from("SVC_GUEST_SOCKET=/run/guest.sock"),
        Buffer.from("SVC_WORKLOAD_SOCKET=/run/workload.sock"),
        Buffer.from("SVC_LOG_LEVEL=debug"),
      ],
      readFiles,
    );
    assert.equal(configuration.guestSocketPath, "/run/guest.sock");
    assert.deepEqual([configuration.workloadSocketPath, configuration.logLevel], ["/run/workload.sock", "debug"]);
    assert.equal(configuration.credentials.tls, undefined);
    assert.ok(configuration.credentials.matchesToken(tokenDigest(Buffer.from(directory.token))));
  });

  test("readBootstrap ignores variables of other programs, even malformed ones", async () => {
    const strangers = ["PATH=/bin", "SVC_GUEST_PORTS=x", "SVC_GUEST_PORT", "=x", ""].map((entry) => Buffer.from(entry));
    const invalid = Buffer.from([0x4e, 0x3d, 0xff, 0xfe]);
    assert.deepEqual(await faultLines([...strangers, invalid, ...channel(directory)]), []);
  });

  test("readBootstrap reports the required variables when the environment is empty", async () => {
    assert.deepEqual(await faultLines([]), [
      "SVC_INSTANCE_TOKEN: is not set, and neither is SVC_INSTANCE_TOKEN_FILE; set one",
      "SVC_GUEST_PORT: is not set, and neither is SVC_GUEST_VSOCK_PORT or SVC_GUEST_SOCKET; set at least one",
    ]);
  });

  test("readBootstrap reports the faults of all variables at once without printing values", async () => {
    const absent = join(directory.path, "absent.pem");
    const environ = channel(directory, {
      SVC_INSTANCE_TOKEN: `two words ${MARKER}`,
      SVC_INSTANCE_TOKEN_FILE: `relative/${MARKER}`,
      SVC_GUEST_PORT: `70${MARKER}`,
      SVC_GUEST_VSOCK_PORT: `70${MARKER}`,
      SVC_TLS_CERT_FILE: absent,
      SVC_TLS_KEY_FILE: directory.certFile,
      SVC_TLS_CLIENT_CA_FILE: await directory.write("empty.pem", ""),
      SVC_GUEST_SOCKET: `relative-${MARKER}`,
      SVC_WORKLOAD_SOCKET: `/${MARKER.repeat(20)}`,
      SVC_PROBE_SOCKET: `relative-${MARKER}`,
      SVC_PROCESS_SPEC: `{"args": ["${MARKER}" "x"]}`,
      SVC_PROCESS_SPEC_FILE: await directory.write("process.json", `{"args": ["${MARKER}" "x"]}`),
      SVC_HOOKS_SPEC: `!${MARKER}`,
      SVC_HOOKS_SPEC_FILE: `relative/${MARKER}`,
      SVC_LOG_LEVEL: MARKER,
    });
    const error = await readBootstrap(environ, readFiles).then(
      () => assert.fail("accepted"),
      (refusal: unknown) => refusal,
    );
    assert.ok(error instanceof BootstrapError);
    assert.deepEqual(
      new Set(error.faults.map((fault) => fault.variable)),
      new Set(BOOTSTRAP_VARIABLES),
      "one fault a variable at least",
    );
    const order = error.faults.map((fault) => BOOTSTRAP_VARIABLES.indexOf(fault.variable));
    assert.deepEqual(
      order,
      order.toSorted((left, right) => left - right),
    );
    const printed = `${error.message} ${String(error.stack)} ${JSON.stringify(error)}`;
    // A file that cannot be read is named, and nothing else.
    assert.equal(printed.split(absent).length, 4);
    assert.doesNotMatch(printed.replaceAll(absent, ""), new RegExp(MARKER));
  });

  test("readBootstrap rejects a variable that is set twice, even to the same value", async () => {
    const faults = await faultLines([...channel(directory), Buffer.from("SVC_GUEST_PORT=7071")]);
    assert.deepEqual(faults, ["SVC_GUEST_PORT: is set more than once; set it once"]);
  });

  test("readBootstrap rejects values that are not UTF-8", async () => {
    const entry = Buffer.concat([Buffer.from("SVC_WORKLOAD_SOCKET=/"), Buffer.from([0xff])]);
    assert.deepEqual(await faultLines([...channel(directory), entry]), ["SVC_WORKLOAD_SOCKET: is not valid UTF-8"]);
  });

  test("readBootstrap rejects an empty value of any variable", async () => {
    const empty = Object.fromEntries(BOOTSTRAP_VARIABLES.map((name) => [name, ""]));
    const faults = await faultLines(channel(directory, empty));
    for (const name of BOOTSTRAP_VARIABLES) {
      assert.ok(faults.includes(`${name}: is empty; set a value or remove it`), name);
    }
  });

  test("readBootstrap reads a JSON or base64 spec from a file", async () => {
    const hooks = create(HooksSchema, { preSnapshot: { args: ["sync"] } });
    const { process, hooks: read } = await readBootstrap(
      channel(directory, {
        SVC_PROCESS_SPEC_FILE: await directory.write("process", '{"args": ["serve"], "env": {"SECRET": "ü"}}\n'),
        SVC_HOOKS_SPEC_FILE: await directory.write(
          "hooks",
          `${Buffer.from(toBinary(HooksSchema, hooks)).toString("base64")}\n`,
        ),
      }),
      readFiles,
    );
    assert.deepEqual([process.args, process.env], [["serve"], new Map([["SECRET", "ü"]])]);
    assert.deepEqual(read.preSnapshot?.args, ["sync"]);
  });

  test("readBootstrap rejects an invalid spec file, and a spec set in two variables", async () => {
    const good = await directory.write("good", "{}");
    for (const name of ["SVC_PROCESS_SPEC", "SVC_HOOKS_SPEC"]) {
      assert.deepEqual(await faultLines(channel(directory, { [name]: "{}", [`${name}_FILE`]: good })), [
        `${name}_FILE: cannot be combined with ${name}; set one of them`,
      ]);
      for (const [path, problem] of [
        [join(directory.path, "absent"), unreadable(join(directory.path, "absent"))],
        [await directory.write("mark", "\ufeff{}"), `in the file: ${MARK}`],
        ["relative", "must be an absolute path"],
        [directory.path, "does not name a regular file"],
        [await directory.write("empty", ""), "names an empty file"],
        [await directory.write("blank", "\n"), "in the file: is blank; set it to a spec or remove it"],
        [await directory.write("latin1", Buffer.from([0x7b, 0xfc, 0x7d])), "names a file that is not UTF-8"],
        [await directory.write("unknown", `{"${MARKER.toLowerCase()}x": 1}`), /^in the file: \w+: unknown field of /],
        [await directory.write("large", `{}${" ".repeat(1024 * 1024)}`), "names a file of more than 1 MiB"],
      ] as const) {
        const [line = "", ...more] = await faultLines(channel(directory, { [`${name}_FILE`]: path }));
        assert.deepEqual(more, []);
        assert.ok(line.startsWith(`${name}_FILE: `), line);
        const found = line.slice(`${name}_FILE: `.length);
        if (typeof problem === "string") assert.equal(found, problem);
        else assert.match(found, problem);
      }
    }
  });

  const withoutTls = { SVC_TLS_CERT_FILE: undefined, SVC_TLS_KEY_FILE: undefined, SVC_TLS_CLIENT_CA_FILE: undefined };
  const withoutPort = { SVC_GUEST_PORT: undefined, SVC_GUEST_SOCKET: "/run/guest.sock", SVC_TLS_KEY_FILE: undefined };
  const TOGETHER: readonly (readonly [what: string, changes: Parameters<typeof channel>[1], ...faults: string[]])[] = [
    [
      "a token in two places",
      { SVC_INSTANCE_TOKEN_FILE: directory.certFile },
      "SVC_INSTANCE_TOKEN_FILE: cannot be combined with SVC_INSTANCE_TOKEN; set one of them",
    ],
    [
      "a token in a file that cannot be a metadata value",
      { SVC_INSTANCE_TOKEN: undefined, SVC_INSTANCE_TOKEN_FILE: twoLines },
      `SVC_INSTANCE_TOKEN_FILE: the token in the file ${NO_METADATA}`,
    ],
    [
      "a port without the three TLS files",
      withoutTls,
      "SVC_TLS_CERT_FILE: is required by SVC_GUEST_PORT, but not set",
      "SVC_TLS_KEY_FILE: is required by SVC_GUEST_PORT, but not set",
      "SVC_TLS_CLIENT_CA_FILE: is required by SVC_GUEST_PORT, but not set",
    ],
    [
      "TLS files without the port",
      withoutPort,
      "SVC_TLS_CERT_FILE: is set without SVC_GUEST_PORT or SVC_GUEST_VSOCK_PORT; set a port or leave the TLS files out",
      "SVC_TLS_CLIENT_CA_FILE: is set without SVC_GUEST_PORT or SVC_GUEST_VSOCK_PORT; set a port or leave the TLS files out",
    ],
    [
      "some of the TLS files beside a vsock port",
      { ...withoutPort, SVC_GUEST_SOCKET: undefined, SVC_GUEST_VSOCK_PORT: "7071" },
      "SVC_TLS_KEY_FILE: is not set, but other TLS files are; set all three or none",
    ],
    [
      "one socket for both",
      { SVC_GUEST_SOCKET: "/run/a.sock", SVC_WORKLOAD_SOCKET: "/run/a.sock" },
      "SVC_WORKLOAD_SOCKET: is the same socket as SVC_GUEST_SOCKET",
    ],
    ["a blank spec", { SVC_PROCESS_SPEC: " \n" }, "SVC_PROCESS_SPEC: is blank; set it to a spec or remove it"],
  ];
  for (const [what, changes, ...faults] of TOGETHER)
    test(`readBootstrap rejects ${what}`, async () =>
      assert.deepEqual(await faultLines(channel(directory, changes)), faults));

  test("readBootstrap accepts valid values of each variable and explains each invalid one", async () => {
    for (const [names, values, problem] of await valuesIn())
      for (const name of names)
        for (const value of values)
          assert.deepEqual(
            await faultLines(channel(directory, { [name]: value })),
            problem === undefined ? [] : [`${name}: ${problem}`],
            value.slice(0, 60),
          );
  });
});

/** Variables, values that each of them has in turn, and the problem with these; none: they are right. */
type Judged = readonly [names: readonly string[], values: readonly string[], problem?: string];

async function valuesIn(): Promise<readonly Judged[]> {
  const fifo = join(directory.path, "fifo");
  await promisify(execFile)("mkfifo", [fifo]);
  await mkdir(join(directory.path, "directory"));
  const validity = { notBefore: new Date(0), notAfter: new Date(Date.now() + 60_000) };
  const other = await issueCertificates("guest-agent", validity);
  const garbage = await directory.write("garbage", `not PEM ${MARKER}`);
  const both = `${await readFile(directory.certFile, "utf8")}${await readFile(directory.clientCaFile, "utf8")}`;
  const broken = await directory.write("broken", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
  const sockets = ["SVC_WORKLOAD_SOCKET", "SVC_GUEST_SOCKET"];
  const certificates = ["SVC_TLS_CERT_FILE", "SVC_TLS_CLIENT_CA_FILE"];
  const key = ["SVC_TLS_KEY_FILE"];
  const files = [...certificates, ...key];
  const ports = ["0", "65536", "-1", "7071 ", "0x10", "1e3", "70.5", "000007071", "seven"];
  const longest = `/${"s".repeat(106)}`;
  const tooLong = "must not be longer than 107 bytes, the limit of a unix socket's path";
  return [
    [["SVC_INSTANCE_TOKEN"], ["x".repeat(4096)]],
    [["SVC_INSTANCE_TOKEN"], ["a b", "ä"], NO_METADATA],
    [["SVC_INSTANCE_TOKEN"], ["x".repeat(4097)], "is longer than 4096 characters"],
    [["SVC_GUEST_PORT"], ["1", "65535"]],
    [["SVC_GUEST_PORT"], ports, "must be a number from 1 to 65535"],
    [["SVC_GUEST_VSOCK_PORT"], ["1", "65536", "4294967294"]],
    [["SVC_GUEST_VSOCK_PORT"], ["0", "4294967295", "-1", "0x10", "x"], "must be a number from 1 to 4294967294"],
    [sockets, [longest]],
    [sockets, [`${longest}s`, `/${"é".repeat(54)}`], tooLong],
    [sockets, ["run/x.sock"], "must be an absolute path"],
    [sockets, ["/run/"], "must name a file, not a directory"],
    [files, [join(directory.path, "absent")], unreadable(join(directory.path, "absent"))],
    [files, ["/no such/dïr"], unreadable('"/no such/dïr"')],
    [files, [`/${"x".repeat(1000)}`], `names /${"x".repeat(199)}…, which user ${uid} cannot read (ENAMETOOLONG)`],
    // OpenSSL passes over a byte order mark.
    [["SVC_TLS_CERT_FILE"], [await directory.write("mark.pem", `\ufeff${await readFile(directory.certFile, "utf8")}`)]],
    [key, [await directory.write("mark.key", `\ufeff${await readFile(directory.keyFile, "utf8")}`)]],
    [["SVC_INSTANCE_TOKEN"], ["\ufefftoken"], MARK],
    [["SVC_PROCESS_SPEC", "SVC_HOOKS_SPEC"], ["\ufeff{}", "\ufeffe30="], MARK],
    [
      ["SVC_PROCESS_SPEC"],
      ["sleep 10", "sleep", "/creds/spec.json", "["],
      noSpec("Process", '{"args": ["sleep", "10"]}'),
    ],
    [["SVC_HOOKS_SPEC"], ["sync -f"], noSpec("Hooks", '{"pre_snapshot": {"args": ["sync"]}}')],
    [["SVC_TLS_CLIENT_CA_FILE"], [directory.clientCaFile, await directory.write("both.pem", both)]],
    [
      ["SVC_TLS_CLIENT_CA_FILE"],
      [directory.certFile],
      "names a file without a CA certificate (basicConstraints CA:TRUE), so every client would be refused",
    ],
    [files, [join(directory.path, "directory"), fifo], "does not name a regular file"],
    [files, ["server.pem"], "must be an absolute path"],
    // The second is a file of size 0 with terabytes in it.
    [files, [await directory.write("empty", ""), "/proc/self/pagemap"], "names an empty file"],
    [files, [await directory.write("large", Buffer.alloc(1024 * 1024 + 1))], "names a file of more than 1 MiB"],
    [certificates, [garbage, broken, directory.keyFile], "names a file that is not a PEM certificate"],
    [key, [garbage, directory.certFile], "names a file that is not an unencrypted private key in PEM"],
    [
      key,
      [await directory.write("other.key", other.server.key)],
      "does not belong to the certificate of SVC_TLS_CERT_FILE",
    ],
  ];
}

describe("unknownVariables", () => {
  const found = (...entries: readonly string[]) => unknownVariables(entries.map((entry) => Buffer.from(entry)));

  test("unknownVariables suggests a known variable that differs by one or two letters", () => {
    assert.deepEqual(found("SVC_GEUST_PORT=secret", "SCV_GUEST_PORT=1", "SVC_TLS_CERTFILE=/x", "SVC_LOGLEVE=debug"), [
      { name: "SVC_GEUST_PORT", meant: "SVC_GUEST_PORT" },
      { name: "SCV_GUEST_PORT", meant: "SVC_GUEST_PORT" },
      { name: "SVC_TLS_CERTFILE", meant: "SVC_TLS_CERT_FILE" },
      { name: "SVC_LOGLEVE", meant: "SVC_LOG_LEVEL" },
    ]);
    for (const known of BOOTSTRAP_VARIABLES) {
      assert.deepEqual(found(`XX${known.slice(2)}=`), [{ name: `XX${known.slice(2)}`, meant: known }]);
      assert.deepEqual(found(`${known}XX=`), [{ name: `${known}XX`, meant: known }]);
    }
  });

  test("for SVC_TOKEN, unknownVariables suggests the longer name SVC_INSTANCE_TOKEN", () => {
    assert.deepEqual(found("SVC_TOKEN=secret", "SVC_PORT=1", "SVC_CERT_FILE=/x", "SVC_OF_ANOTHER_KIND=1"), [
      { name: "SVC_TOKEN", meant: "SVC_INSTANCE_TOKEN" },
      { name: "SVC_PORT", meant: "SVC_GUEST_PORT" },
      { name: "SVC_CERT_FILE", meant: "SVC_TLS_CERT_FILE" },
      { name: "SVC_OF_ANOTHER_KIND", meant: undefined },
    ]);
  });

  test("unknownVariables ignores the agent's own variables and names without the SVC_ prefix", () => {
    const own = BOOTSTRAP_VARIABLES.map((name) => `${name}=x`);
    const others = ["PATH=/bin", "KUBERNETES_SERVICE_HOST=10.0.0.1", "SERVICE_PORT=1", "SVC_=1", "=x", "x"];
    assert.deepEqual(found(...own, ...others), []);
  });
});
