-- The template of the event StepAnswered. A program that migrates adds the templates that it knows and that are not
-- there; this version makes programs do so that find a schema of an earlier version.
INSERT INTO event_templates (codec, event_type, json)
VALUES (1, 'StepAnswered', '{"emittedAt":"$at","emittedBy":"system","runId":"$runId","engineAttemptId":1,"logicalAttemptId":1}')
ON CONFLICT DO NOTHING;
