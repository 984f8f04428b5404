/// <reference types="node-pty" />

/** The package's types name it as it is published; here it is installed as node-pty. */
declare module "node-pty" {
  export * from "@lydell/node-pty";
}
