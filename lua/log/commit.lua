#!lua flags=allow-oom
-- Readers say up to where they have what was handed to them, and get as much more.
-- ARGV: now revision frontend sent number retry | subids position
-- RETURNS: ok stale gone deleted | ok not-subscribed offset-not-found
local refusal = partition.load()
if refusal then return refusal end
local results = budget.each(rows, function(row)
  local reader = readers.of(row.subids)
  if not reader then return {'not-subscribed'} end
  if positions.after(row.position, reader.position) then return {'offset-not-found'} end
  window.commit(reader, row.position)
  window.settle(reader)
  ending.touch(reader.subid)
  call.ending_arrived[reader.subid] = true
  return {'ok'}
end)
return finish.reply(results, {}, 0)
