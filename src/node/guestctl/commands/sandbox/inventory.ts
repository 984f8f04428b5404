import type { Subcommand } from "../../cli/index.ts";
import { imagesAnswer, nodeAnswer } from "../../sandbox/index.ts";
import { defineVerb } from "./verb.ts";

export const node: Subcommand = defineVerb({
  summary: "show the daemon and the resources of its host",
  usage: ["node"],
  about:
    "Shows the substrate's daemon: its version, its hypervisors and their features, and the resources of its host.",
  options: {},
  examples: ["node", "node --json | jq .resources.memory_bytes"],
  takes: "nothing",
  isReading: true,
  run: ({ node: sandboxes }) => nodeAnswer(sandboxes),
});

export const images: Subcommand = defineVerb({
  summary: "list the images from which sandboxes can be created",
  usage: ["images [--daemon-folder DIR]"],
  about:
    "Lists all images of the daemon, also those that other nodes use, and says for each image that is not ready what to do.",
  options: {
    "daemon-folder": {
      argument: "DIR",
      completes: "directory",
      help: "data directory of the daemon, in which guestctl measures the disk space of each image (default /var/lib/hypeman)",
    },
  },
  examples: ["images"],
  takes: "nothing",
  isReading: true,
  run: ({ node: sandboxes }) => imagesAnswer(sandboxes),
});
