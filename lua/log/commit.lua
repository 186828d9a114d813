#!lua flags=allow-oom
-- Store the committed positions of readers, and deliver more entries to them.
-- ARGV: now revision frontend number retry | subids position
-- RETURNS: ok stale gone deleted | ok not-subscribed offset-not-found
local refusal = partition.load()
if refusal then return refusal end
local results = budget.each(rows, function(row)
  local reader = log_readers.by_sender(row.subids)
  if not reader then return {'not-subscribed'} end
  if positions.after(row.position, reader.position) then return {'offset-not-found'} end
  reader_window.commit(reader, row.position)
  reader_window.save(reader, reader.position)
  lock_end.touch(reader.subid)
  lock_end.note_arrival(reader.subid)
  return {'ok'}
end)
return respond.make(results, 0)
