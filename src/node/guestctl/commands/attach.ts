import { type Command, checkInput, defineCommand, UsageError } from "../cli/index.ts";
import { CONNECTION_OPTIONS, connector } from "../connection/index.ts";
import { ESCAPE_OPTION, keptCommand, parseEscapeChar, attachToKept } from "../terminal/index.ts";

export const attach: Command = defineCommand({
  usage: ["attach [options] NAME"],
  about: `Attaches to a command that was started with "exec --name", even if the command has already ended. A client that is
attached to the command is detached. The output begins with the oldest output that the agent still has. If the command
runs in a terminal, guestctl shows only new output, and makes the program redraw its screen.`,
  options: {
    interactive: {
      short: "i",
      help: "connect standard input (default if it is a terminal and the command runs in a terminal)",
    },
    tty: { short: "t", help: "accepted for compatibility: the command has a terminal if it was started with one" },
    "no-input": { help: "do not connect standard input, even if it is a terminal" },
    from: {
      argument: "WHERE",
      help: 'where the output begins: "held" (everything that the agent has kept) or "now"',
      completes: ["held", "now"],
    },
    ...ESCAPE_OPTION,
    ...CONNECTION_OPTIONS,
  },
  notes: `The escape sequence ~. (see "exec -it") and the third SIGINT disconnect guestctl; the command continues. So do
SIGHUP and, if the command is connected to your terminal, SIGTERM. guestctl forwards SIGINT, SIGQUIT, SIGTERM, SIGUSR1
and SIGUSR2 to the command. If the connection is lost, guestctl tries to reconnect for ten minutes, or without a time
limit if the command is connected to your terminal.
With --json, the same events as those of "exec --name --json".`,
  statuses: `the same exit statuses as "exec"; also 125 if another client has attached to the command.`,
  examples: ["attach build", "attach --from now --no-input build", "attach -i sorter < part2"],
  takes: { one: "the name of one kept command" },
  completes: ["exec", "nothing"],
  ignored: ["-q --quiet"],
  hints: [
    ["--sig-proxy", "signals are always forwarded to the command"],
    ["-d", "attach always detaches the previous client; leave the option out"],
    ["--detach-keys", "--escape-char ^] sets the escape key"],
    ["--no-stdin", "--no-input does not connect standard input"],
  ],
  async run({ values, positionals }, host) {
    const [name = ""] = positionals;
    const { from, interactive, "no-input": noInput } = values;
    if (from !== undefined && from !== "held" && from !== "now")
      throw new UsageError('--from requires "held" or "now"');
    if (interactive === true && noInput === true) throw new UsageError("-i and --no-input cannot be combined");
    if (interactive === true) checkInput(host);
    const escape = parseEscapeChar(values["escape-char"]);
    const connection = await connector(values, host);
    using client = connection.connect();
    const how = {
      exec: await keptCommand(client, name),
      fromNow: from === undefined ? undefined : from === "now",
      isInteractive: noInput === true ? false : interactive,
      escape,
      isForPrograms: values.json === true,
    };
    return await attachToKept(how, client, connection, host);
  },
});
