export {
  ANSWER_TIMEOUT_MS,
  answeringClient,
  CONNECTION_HELP,
  CONNECTION_OPTIONS,
  type ConnectionValues,
  type Connector,
  connector,
  isDialError,
  openClient,
} from "./connection.ts";
