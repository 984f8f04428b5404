/// <reference types="node-pty" />

/** The package's types name the package as it is published, but here it is installed under the name node-pty. */
declare module "node-pty" {
  export * from "@lydell/node-pty";
}
