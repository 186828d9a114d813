#!lua flags=allow-oom
-- End what links own: a group whose last link closes begins anew with its epoch (E29); one whose connection was lost is `kept`
-- until its lease would have ended (EX11).
-- ARGV: now revision | group fence kept
-- RETURNS: ok stale gone deleted | ok superseded
local refusal = partition.load()
if refusal then return refusal end
local results = {}
for i, row in ipairs(rows) do
  local known = reader_ownership.get(row.group)
  if not (known and known.fence == tonumber(row.fence)) then
    results[i] = {'superseded'}
  else
    results[i] = {'ok'}
    known.active = false
    if row.kept == '' then redis.call('HDEL', key.reader_owners, row.group) else reader_ownership.put(row.group, known) end
  end
end
return {'ok', results, {}, {}, {}, 0, 0, call.partition_token}
