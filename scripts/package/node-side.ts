/**
 * The oldest Node that runs what is made for the node side. From 20.19 and 22.12 on, programs that use require() can
 * load the client library, which is an ES module; `using` needs 20.5.
 */
export const LOWEST_NODE = "20.19.0";

/** The same for the package manifest, without the releases of 21 and 22 that cannot. */
export const NODE_ENGINES = "^20.19.0 || >=22.12.0";
