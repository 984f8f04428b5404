import assert from "node:assert/strict";
import { describe, test } from "node:test";
import {
  type Hints,
  hintForCommand,
  LEADING_OPTIONS,
  OTHER_COMMANDS,
  OTHER_OPTIONS,
  SANDBOX_VERBS,
  type Subcommand,
} from "../../../src/node/guestctl/cli/index.ts";
import { COMMANDS } from "../../../src/node/guestctl/commands/index.ts";

/** All commands of `docker --help`, Docker 28 (docs.docker.com/reference/cli/docker/). */
const DOCKER =
  `run exec ps build bake pull push images login logout search version info builder buildx checkpoint compose container
  context image manifest network plugin system trust volume swarm config node secret service stack attach commit cp
  create diff events export history import inspect kill load logs pause port rename restart rm rmi save start stats stop
  tag top unpause update wait`.split(/\s+/);
/** All commands of `kubectl --help`, Kubernetes 1.32 (kubernetes.io/docs/reference/kubectl/generated/). */
const KUBECTL =
  `create expose run set explain get edit delete rollout scale autoscale certificate cluster-info top cordon uncordon
  drain taint describe logs attach exec port-forward proxy cp auth debug events diff apply patch replace wait kustomize
  label annotate completion api-resources api-versions config plugin version`.split(/\s+/);
/** Programs of the Debian packages openssh-client and openssh-server. */
const OPENSSH = "ssh scp sftp ssh-add ssh-agent ssh-copy-id ssh-keygen ssh-keyscan".split(" ");

/** The verbs of `docker container`, Docker 28. */
const CONTAINER =
  `attach commit cp create diff exec export inspect kill logs ls pause port prune rename restart rm run start stats stop
  top unpause update wait`.split(/\s+/);

describe("answers to words of other tools", () => {
  test("guestctl has a command or a hint for each docker, kubectl and OpenSSH command", () => {
    const unknown = [...DOCKER, ...KUBECTL, ...OPENSSH].filter(
      (name) => !COMMANDS.has(name) && hintForCommand(name) === undefined,
    );
    assert.deepEqual(unknown, []);
  });

  test("`guestctl sandbox` has a verb or a hint for each `docker container` verb", async () => {
    const { subcommands } = (await COMMANDS.get("sandbox")?.load()) ?? {};
    const answered = new Set(SANDBOX_VERBS.flatMap(([words]) => words.split(" ")));
    assert.deepEqual(
      CONTAINER.filter((verb) => subcommands?.has(verb) !== true && !answered.has(verb)),
      ["diff"],
    );
  });

  test("every hint names only commands and options that guestctl has", async () => {
    const loaded = await Promise.all(
      Array.from(COMMANDS, async ([name, entry]) => [name, await entry.load()] as const),
    );
    const commands = new Map(loaded);
    const verbs = commands.get("sandbox")?.subcommands ?? new Map<string, Subcommand>();
    const ofCommands = [...commands.values(), ...[...verbs.values()].map(({ command }) => command)];
    const tables: readonly Hints[] = [
      OTHER_COMMANDS,
      OTHER_OPTIONS,
      LEADING_OPTIONS,
      SANDBOX_VERBS,
      ...ofCommands.map(({ hints }) => hints),
    ];
    let named = 0;
    for (const [, answer] of tables.flat())
      for (const [phrase, word = "", next = ""] of answer.matchAll(
        /(?:^|"|[:|] )guestctl ([a-z][\w-]*)(?: ([a-z][\w-]*))?/g,
      )) {
        named += 1;
        assert.ok(commands.has(word) || word === "help", `${phrase}: ${answer}`);
        if (word === "sandbox" && next !== "") assert.ok(verbs.has(next), `${phrase}: ${answer}`);
      }
    assert.ok(named > 100, String(named));
  });

  test("no hint appears twice or is for guestctl's own commands or options", async () => {
    for (const table of [OTHER_COMMANDS, OTHER_OPTIONS, LEADING_OPTIONS, SANDBOX_VERBS]) {
      const words = table.flatMap(([each]) => each.split(" "));
      assert.deepEqual(
        words.filter((word, index) => words.indexOf(word) !== index),
        [],
      );
    }
    for (const word of OTHER_COMMANDS.flatMap(([words]) => words.split(" "))) assert.ok(!COMMANDS.has(word), word);
    const entries = await Promise.all([...COMMANDS.values()].map((entry) => entry.load()));
    const all = entries.flatMap((command) => [
      command,
      ...[...(command.subcommands?.values() ?? [])].map((each) => each.command),
    ]);
    for (const { options, hints } of all) {
      const own = new Set(
        Object.entries(options).flatMap(([long, { short = long, also = [] }]) =>
          [long, short, ...also].map((name) => (name.length === 1 ? `-${name}` : `--${name}`)),
        ),
      );
      const dead = hints.flatMap(([words]) => words.split(" ")).filter((word) => own.has(word));
      assert.deepEqual(dead, [], Object.keys(options).join());
    }
  });
});
