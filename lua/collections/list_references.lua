#!lua flags=no-writes
-- List the references of a collection from a scan cursor on: the next cursor, and of each its name, subid, queue, deadline, and why it is to
-- end, if it is.
-- ARGV: now revision scan
-- RETURNS: ok(scan references(name subid queue deadline_ms reason)) stale gone deleted
local refusal = partition.load()
if refusal then return refusal end
local found, listed = redis.call('HSCAN', key.lent, arg.scan, 'COUNT', 200), {}
for i = 1, #found[2], 2 do
  local one = semaphore.read(found[2][i + 1])
  if one then listed[#listed + 1] = {found[2][i], one.subid, one.queue, one.deadline, one.reason ~= '-' and one.reason or ''} end
end
return respond.results({found[1], listed})
