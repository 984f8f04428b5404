export {
  ANSWER_TIMEOUT_MS,
  CONNECTION_HELP,
  CONNECTION_OPTIONS,
  type ConnectionValues,
  type Connector,
  connector,
  openClient,
} from "./connection.ts";
