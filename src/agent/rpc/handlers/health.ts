import type { HealthReport } from "../../health/index.ts";
import { HealthResponseSchema } from "../../../shared/gen/svc/guest/v1alpha1/health_pb.ts";
import { FrameWriter, type Frame } from "../codec.ts";

/** Size of the initial buffer: twice the size of a typical report. */
const SIZE_BYTES = 640;
const FIELD = HealthResponseSchema.field;

/**
 * Encodes the Health response by hand, because node agents poll it. With the protobuf library, a call takes 11 % more
 * CPU time (4.0 us more than 36 us).
 */
export function healthFrame(report: HealthReport, services: readonly string[]): Frame {
  const { ready, readyCommandExit, lastUserActivityNs, guestTimeNs, idleDeclaredNs } = report;
  const writer = new FrameWriter(SIZE_BYTES);
  writer.number(FIELD.alive.number, 1);
  writer.number(FIELD.ready.number, ready ? 1 : 0);
  writer.number(FIELD.readyCmdExit.number, readyCommandExit);
  writer.timeNs(FIELD.lastUserActivity.number, lastUserActivityNs);
  writer.timeNs(FIELD.guestTime.number, guestTimeNs);
  if (idleDeclaredNs !== undefined) writer.timeNs(FIELD.idleDeclared.number, idleDeclaredNs);
  writer.number(FIELD.frozen.number, report.frozen ? 1 : 0);
  writer.number(FIELD.thawedWithoutDuties.number, report.thawedWithoutDuties ? 1 : 0);
  writer.number(FIELD.processEnvVersion.number, report.processEnvVersion);
  for (const service of services) writer.latin1(FIELD.services.number, service);
  return writer.frame();
}
