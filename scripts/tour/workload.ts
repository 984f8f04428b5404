// The workload of the tour; it could be any program in any language. It declares itself idle on the socket that its
// environment names, and then waits.
import { request } from "node:http";

const call = request({
  socketPath: process.env["SVC_WORKLOAD_SOCKET"],
  path: "/svc.guest.v1alpha1.WorkloadService/DeclareIdle",
  method: "POST",
  headers: { "content-type": "application/json" },
});
call.on("response", (response) => response.resume());
call.end("{}");

process.on("SIGTERM", () => process.exit(42));
setInterval(() => {}, 3_600_000);
