import { readFile } from "node:fs/promises";
import { messageOf } from "../../../../shared/errors.ts";
import { DEFAULT_PORT } from "../../../client/index.ts";
import type { HooksSpec, IdleAction, ProcessSpec, SandboxSpec } from "../../../sandboxes/index.ts";
import { CliError, parseCount, parseDurationMs, quoted, UsageError, type Subcommand } from "../../cli/index.ts";
import { AGENT_OPTION, ENVIRONMENT_OPTIONS, sandboxObject, WAIT_OPTION } from "../../sandbox/index.ts";
import { defineVerb, variablesOf } from "./verb.ts";

export const create: Subcommand = defineVerb({
  summary: "create a sandbox from an image, and start its workload",
  usage: ["create [options] IMAGE [COMMAND [ARG...]]"],
  about: `Creates a sandbox with the agent inside, and waits until the agent answers. Options precede IMAGE; everything after
it is the workload's command. Without a command, --process or the image says what to run.`,
  options: {
    name: { argument: "NAME", help: "name of the sandbox (default: a random one)" },
    ...ENVIRONMENT_OPTIONS,
    process: {
      argument: "FILE",
      completes: "file",
      help: "file that describes the workload: a Process message in proto3 JSON; COMMAND and --env are added to it",
    },
    hooks: {
      argument: "FILE",
      completes: "file",
      help: "file that describes the hooks: a Hooks message in proto3 JSON",
    },
    tag: { multiple: true, argument: "KEY=VALUE", also: ["label", "l"], help: "add a tag to the instance" },
    vcpus: { argument: "N", also: ["cpus"], help: "number of virtual processors" },
    memory: { argument: "SIZE", short: "m", help: "size of the memory, such as 1GB" },
    "overlay-size": {
      argument: "SIZE",
      help: "limit of the data that the sandbox can write to its disk, such as 20GB",
    },
    hypervisor: { argument: "NAME", help: "hypervisor: qemu, or another one that the daemon supports" },
    ttl: {
      argument: "DURATION",
      help: 'let "guestctl sandbox watch" remove the sandbox after its user has been inactive for this long',
    },
    "idle-action": {
      argument: "ACTION",
      completes: ["none", "standby", "stop"],
      help: 'what "guestctl sandbox watch" does when the workload declares itself idle: none, standby or stop (default none)',
    },
    ...AGENT_OPTION,
    "agent-port": { argument: "PORT", help: `the agent's port in the sandbox (default ${DEFAULT_PORT})` },
    ...WAIT_OPTION,
  },
  examples: [
    "create --name box --agent guest-agent.tar.gz debian:12 sleep 1000",
    "create -e PORT=3000 --env-file app.env --memory 2GB app:1",
  ],
  takes: { some: "an image" },
  takesCommand: true,
  ignored: ["-d --detach"],
  hints: [
    [
      "-i -t --interactive --tty",
      "create starts the workload without a terminal; to open a shell afterwards: guestctl exec -it --sandbox NAME -- sh",
    ],
    [
      "-p -P --publish --publish-all --expose",
      'once the sandbox runs: guestctl forward --sandbox NAME 8080:80, or "guestctl sandbox publish" for a hostname',
    ],
    ["--rm", '--ttl DURATION lets "guestctl sandbox watch" remove it later, "guestctl sandbox rm NAME" removes it now'],
    [
      "--volume --mount --tmpfs --volumes-from",
      'no directory of the host is mounted in a sandbox; "guestctl cp" copies files',
    ],
    [
      "-u --user -w --workdir --restart --stop-signal --stop-timeout --ulimit",
      '--process FILE describes the workload: "user", "cwd" and more',
    ],
    ["--entrypoint", "the words after IMAGE are the workload's whole command"],
    ["-c --cpu-shares --cpuset-cpus", "--vcpus N sets the number of virtual processors"],
    ["--memory-swap --shm-size --storage-opt", "--memory SIZE sets the memory, --overlay-size SIZE limits the disk"],
    [
      "--hostname --network --net --ip --dns --add-host --link --mac-address",
      "the substrate chooses the network of a sandbox",
    ],
    [
      "--privileged --cap-add --cap-drop --security-opt --device --gpus --pid --ipc --userns",
      "a sandbox is a virtual machine of its own: nothing of the host is shared with it",
    ],
    ["-a --attach --sig-proxy", '"guestctl logs -f NAME" shows the output of the workload'],
    ["-f --file --filename", "--process FILE describes the workload, and --env-file FILE sets its variables"],
    ["--init", "the agent is the init of the sandbox and reaps its processes"],
    ["--pull --platform --quiet -q", '"guestctl sandbox images" lists the images of the substrate'],
    [
      "--health-cmd --health-interval --no-healthcheck",
      '"ready_cmd" of --process FILE says when the workload is ready',
    ],
    ["--label-file --annotation", "--tag KEY=VALUE adds a tag"],
    ["--cidfile --log-driver --log-opt --replicas", "create does not have this option; its --help lists all options"],
  ],
  async run({ node, values, positionals, host }) {
    const [image = "", ...words] = positionals;
    // Reject a path in place of the image, because it is probably the argument of docker's -v HOST:GUEST.
    if (/^[./]/.test(image))
      throw new UsageError(
        `${image} is a path, but must be the name of an image; -v is short for --verbose, not for a volume: guestctl cannot mount a directory of the host; copy files with "guestctl cp"`,
      );
    const args = words[0] === "--" ? words.slice(1) : words;
    if (words[0] !== "--" && words[0]?.startsWith("-"))
      throw new UsageError(
        `write ${words[0]} before the image, because everything after the image is the workload's command`,
      );
    const process = values.process === undefined ? {} : await specOf(values.process);
    const env = await variablesOf(values, host);
    const spec: SandboxSpec = {
      image,
      name: values.name,
      process: {
        ...process,
        ...(args.length > 0 && { args }),
        ...(env !== undefined && { env: { ...process.env, ...env } }),
      },
      hooks: values.hooks === undefined ? undefined : await specOf(values.hooks),
      tags: values.tag && Object.fromEntries(values.tag.map(tagOf)),
      vcpus: parseCount(values.vcpus, "--vcpus", 1),
      memory: values.memory,
      overlaySize: values["overlay-size"],
      hypervisor: values.hypervisor,
      ttlMs: parseDurationMs(values.ttl, "--ttl"),
      idleAction: values["idle-action"] as IdleAction | undefined,
    };
    const made = await node.create(spec);
    const flags = (["state", "api"] as const).flatMap((each) =>
      values[each] ? [`--${each} ${quoted(values[each])} `] : [],
    );
    const text = `${made.name} runs\n  guestctl exec --sandbox ${made.name} ${flags.join("")}-- true\n`;
    return { text, json: sandboxObject(made) };
  },
});

async function specOf(path: string): Promise<ProcessSpec & HooksSpec> {
  let text;
  try {
    text = await readFile(path, "utf8");
  } catch (error) {
    throw new CliError(`cannot read ${path}: ${messageOf(error)}`);
  }
  let spec: unknown;
  try {
    spec = JSON.parse(text);
  } catch {
    // Do not use the parser's message, because it could quote secrets in the spec.
    throw new CliError(`${path} is not valid JSON`);
  }
  if (typeof spec !== "object" || spec === null || Array.isArray(spec))
    throw new CliError(`${path} must contain one JSON object`);
  return spec;
}

function tagOf(text: string): readonly [key: string, value: string] {
  const at = text.indexOf("=");
  if (at < 1) throw new UsageError("--tag requires KEY=VALUE");
  return [text.slice(0, at), text.slice(at + 1)];
}
