#!lua
-- Change affiliations of a node. Refuse all changes when no owner would be left (P2) or the list would be too long.
-- ARGV: now incarnation most | jid affiliation
-- RETURNS: ok stale no-owner too-many
local node = redis.call('HMGET', key.node, 'incarnation', 'revision')
if node[1] ~= arg.incarnation then return {'stale'} end
local after, owners, count = {}, 0, 0
local now = redis.call('HGETALL', key.affiliations)
for i = 1, #now, 2 do after[now[i]] = now[i + 1] end
for _, row in ipairs(rows) do after[row.jid] = row.affiliation ~= 'none' and row.affiliation or nil end
for _, affiliation in pairs(after) do
  count = count + 1
  if affiliation == 'owner' then owners = owners + 1 end
end
if owners == 0 then return {'no-owner'} end
if count > tonumber(arg.most) then return {'too-many'} end
for _, row in ipairs(rows) do
  if row.affiliation == 'none' then
    redis.call('HDEL', key.affiliations, row.jid)
  else
    redis.call('HSET', key.affiliations, row.jid, row.affiliation)
  end
end
revisions.raise(node[2])
return {'ok'}
