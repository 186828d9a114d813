#!lua flags=allow-oom
-- End reader ownership of links. A group whose last link closes may begin with any epoch (E29); `kept`, for a lost connection, keeps the
-- epoch until the lease would have ended (EX11).
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
return respond.results(results)
